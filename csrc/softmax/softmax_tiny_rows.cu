#include <bit>

#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/tiny_rows.cuh"

namespace xgemm::softmax {

void launch_tiny_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const TinyRows rows{.outer = plan.outer,
                        .stride = plan.kept.stride[0],
                        .length = static_cast<int>(plan.length),
                        .lanes = plan.lanes,
                        .log2_lanes = std::countr_zero(static_cast<unsigned>(plan.lanes)),
                        .log = plan.log};
    const auto go = [&](auto kernel) {
      launch_clusters<true>(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, rows, static_cast<const T*>(in),
                            static_cast<O*>(out));
    };
    if constexpr (sizeof(T) < 8 && sizeof(T) == sizeof(O))
      if (plan.steps > kTinyElements) return go(softmax_tiny_rows<T, O, 2 * kTinyElements>);
    go(softmax_tiny_rows<T, O, kTinyElements>);
  });
}

}  // namespace xgemm::softmax
