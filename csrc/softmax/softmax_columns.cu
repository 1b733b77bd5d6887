#include "softmax/kernels/columns.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const auto go = [&]<auto kKernel>() {
      if (plan.cluster > 8)  // a promise of this GPU, not of every one
        once_a_device<kKernel>(
            [](int) { return cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess; });
      launch_clusters(kKernel, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, plan, static_cast<const T*>(in),
                      static_cast<O*>(out));
    };
    const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
    if (plan.aligned && plan.columns % Pack<T>::kCount == 0 && addresses)
      return go.template operator()<softmax_columns<T, O, true>>();
    go.template operator()<softmax_columns<T, O, false>>();
  });
}

}  // namespace xgemm::softmax
