#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/single.cuh"

namespace xgemm::softmax {

void launch_single(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    launch_clusters<true>(softmax_single<T, O>, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, plan.outer, plan.log,
                          static_cast<const T*>(in), static_cast<O*>(out));
  });
}

}  // namespace xgemm::softmax
