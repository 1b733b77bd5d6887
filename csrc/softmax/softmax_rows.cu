#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/rows.cuh"

namespace xgemm::softmax {

void launch_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const auto go = [&](auto kernel, const auto& map) {
      kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), 0, stream>>>(
          rows_of(plan), map, static_cast<const T*>(in), static_cast<O*>(out));
    };
    const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
    const bool plain = plan.aligned && plan.kept.dims <= 1 && plan.length % Pack<T>::kCount == 0 && addresses;
    if (!plain) return go(softmax_rows<T, O, kRowSteps, IndexMap>, plan.kept);
    const OneStride map{plan.kept.stride[0]};
    if constexpr (sizeof(T) < 8)
      if (plan.steps <= kShortSteps) return go(softmax_rows<T, O, kShortSteps, OneStride>, map);
    go(softmax_rows<T, O, kRowSteps, OneStride>, map);
  });
}

}  // namespace xgemm::softmax
