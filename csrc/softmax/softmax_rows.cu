#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/rows.cuh"

namespace xgemm::softmax {

void launch_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) { launch_clusters<T, O>(softmax_rows<T, O>, plan, in, out, stream); });
}

}  // namespace xgemm::softmax
