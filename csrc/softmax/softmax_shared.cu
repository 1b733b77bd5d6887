#include "device/all_shared.h"
#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/shared.cuh"

namespace xgemm::softmax {

void launch_shared(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const int rows = plan.threads / plan.lanes;
    const dim3 block(static_cast<unsigned>(plan.lanes), static_cast<unsigned>(rows));
    const std::size_t bytes = static_cast<std::size_t>(rows) * (static_cast<std::size_t>(plan.chunk) * 16 + 32);
    const auto go = [&]<auto kKernel>() {
      allow_all_shared<kKernel>();
      launch_clusters<true>(kKernel, plan, block, bytes, stream, rows_of(plan), plan.kept, static_cast<const T*>(in),
                            static_cast<O*>(out));
    };
    if (plan.lanes == kWarpSize) return go.template operator()<softmax_shared<T, O, kWarpSize>>();
    go.template operator()<softmax_shared<T, O, kBlockThreads>>();
  });
}

}  // namespace xgemm::softmax
