#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/short_rows.cuh"

namespace xgemm::softmax {

void launch_short_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    if constexpr (sizeof(T) < 8) {
      const ShortRows rows{static_cast<unsigned>(plan.outer), static_cast<unsigned>(plan.kept.stride[0] / Pack<T>::kCount),
                           static_cast<int>(plan.length / Pack<T>::kCount), plan.lanes, plan.log};
      launch_clusters<true>(softmax_short_rows<T, O>, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, rows,
                            static_cast<const T*>(in), static_cast<O*>(out));
    }
  });
}

}  // namespace xgemm::softmax
