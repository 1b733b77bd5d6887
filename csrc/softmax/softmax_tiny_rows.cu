#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/tiny_rows.cuh"

namespace xgemm::softmax {

void launch_tiny_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const auto go = [&](auto kernel, const auto& map) {
      launch_clusters<true>(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, rows_of(plan), map,
                            static_cast<const T*>(in), static_cast<O*>(out));
    };
    if (plan.kept.dims <= 1)
      go(softmax_tiny_rows<T, O, OneStride>, OneStride{plan.kept.stride[0]});
    else
      go(softmax_tiny_rows<T, O, IndexMap>, plan.kept);
  });
}

}  // namespace xgemm::softmax
