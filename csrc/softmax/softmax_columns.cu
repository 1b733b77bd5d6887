#include "softmax/kernels/columns.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    launch_clusters<T, O>(softmax_columns<T, O>, plan, plan, 0, in, out, stream);
  });
}

}  // namespace xgemm::softmax
