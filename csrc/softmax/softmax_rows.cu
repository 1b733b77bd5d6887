#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/rows.cuh"

namespace xgemm::softmax {

void launch_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const auto go = [&](auto kernel, const auto& map) {
      launch_clusters<true>(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, rows_of(plan), map,
                            static_cast<const T*>(in), static_cast<O*>(out));
    };
    const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
    const bool plain = plan.aligned && plan.kept.dims <= 1 && plan.length % Pack<T>::kCount == 0 && addresses;
    if (!plain) return go(softmax_rows<T, O, IndexMap>, plan.kept);
    const std::int64_t stride = plan.kept.stride[0];
    if (sizeof(T) < 8 && plan.steps <= kShortSteps && plan.outer <= INT32_MAX && stride / Pack<T>::kCount <= INT32_MAX)
      return launch_short_rows(plan, in, out, stream);
    go(softmax_rows<T, O, OneStride>, OneStride{stride});
  });
}

}  // namespace xgemm::softmax
