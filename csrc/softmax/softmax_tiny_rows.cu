#include <bit>

#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/tiny_rows.cuh"

namespace xgemm::softmax {

void launch_tiny_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const TinyRows rows{plan.outer, static_cast<int>(plan.length), plan.lanes,
                        std::countr_zero(static_cast<unsigned>(plan.lanes)), plan.log};
    const auto go = [&](auto kernel, const auto& map) {
      launch_clusters<true>(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, rows, map,
                            static_cast<const T*>(in), static_cast<O*>(out));
    };
    if (!plan.evenly_spaced) return go(softmax_tiny_rows<T, O, kTinyElements, 1, IndexMap>, plan.kept);
    const ShortStride map{static_cast<unsigned>(plan.kept.stride[0])};
    if constexpr (sizeof(T) < 8 && sizeof(T) == sizeof(O))
      if (plan.steps > kTinyElements) return go(softmax_tiny_rows<T, O, 2 * kTinyElements, 2, ShortStride>, map);
    go(softmax_tiny_rows<T, O, kTinyElements, 1, ShortStride>, map);
  });
}

}  // namespace xgemm::softmax
