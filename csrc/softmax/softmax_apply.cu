#include "softmax/kernels/apply.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_apply(const Plan& plan, const void* in, void* out, const void* pairs, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    launch_clusters<true>(softmax_apply<T, O>, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, plan,
                          static_cast<const T*>(in), static_cast<O*>(out), static_cast<const Value<T>*>(pairs));
  });
}

}  // namespace xgemm::softmax
