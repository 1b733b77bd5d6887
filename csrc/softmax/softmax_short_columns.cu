#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/short_columns.cuh"

namespace xgemm::softmax {

void launch_short_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const ShortColumns columns{.count = plan.outer * plan.columns,
                               .columns = plan.columns,
                               .length_stride = plan.length_stride,
                               .by_columns = Divider::of(plan.columns),
                               .length = static_cast<int>(plan.length),
                               .log = plan.log};
    launch_clusters<true>(softmax_short_columns<T, O>, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, columns,
                          plan.kept, static_cast<const T*>(in), static_cast<O*>(out));
  });
}

}  // namespace xgemm::softmax
