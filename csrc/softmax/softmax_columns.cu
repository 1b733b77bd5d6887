#include "softmax/kernels/columns.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    constexpr auto kKernel = softmax_columns<T, O>;
    if (plan.cluster > 8)  // a promise of this GPU, not of every one
      once_a_device<kKernel>(
          [](int) { return cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess; });
    launch_clusters(kKernel, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, plan, static_cast<const T*>(in),
                    static_cast<O*>(out));
  });
}

}  // namespace xgemm::softmax
