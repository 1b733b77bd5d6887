#include "softmax/kernels/columns.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const auto kernel = softmax_columns<T, O>;
    // More than 8 blocks is a promise of this GPU, not of every one: allowed a kernel and device at a time, kept by the driver.
    if (plan.cluster > 8) cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    launch_clusters(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, plan, static_cast<const T*>(in),
                    static_cast<O*>(out));
  });
}

}  // namespace xgemm::softmax
