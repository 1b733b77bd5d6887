#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/odd_rows.cuh"

namespace xgemm::softmax {

void launch_odd_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch_floating(plan.in, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) < 8)
      launch_clusters<true>(softmax_odd_rows<T>, plan, dim3(static_cast<unsigned>(plan.threads)), 0, stream, rows_of(plan),
                            plan.kept, static_cast<const T*>(in), static_cast<T*>(out));
  });
}

}  // namespace xgemm::softmax
