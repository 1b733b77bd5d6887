#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/masked.cuh"

namespace xgemm::softmax {

void launch_masked(const Masked& plan, const void* in, const void* mask, void* out, cudaStream_t stream) {
  dispatch_floating(plan.dtype, [&]<class T>(Type<T>) {
    const bool aligned = plan.aligned && (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(mask) |
                                          reinterpret_cast<std::uintptr_t>(out)) %
                                                 16 ==
                                             0;
    const auto kernel = plan.kernel == MaskedKernel::any        ? softmax_masked_any<T>
                        : plan.kernel == MaskedKernel::elements ? softmax_masked_elements<T>
                        : aligned                               ? softmax_masked_rows<T, true>
                                                                : softmax_masked_rows<T, false>;
    kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), 0, stream>>>(
        plan, static_cast<const T*>(in), mask, static_cast<T*>(out));
  });
}

}  // namespace xgemm::softmax
