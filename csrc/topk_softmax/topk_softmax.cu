#include "topk_softmax/kernels/rounds.cuh"
#include "topk_softmax/kernels/select.cuh"
#include "topk_softmax/launch.h"

void xgemm::topk_softmax::launch(const Plan& plan, const void* in, void* values, std::int64_t* indices, cudaStream_t stream) {
  dispatch_floating(plan.in, [&]<class T>(Type<T>) {
    const auto kernel = plan.kernel == Kernel::select ? topk_select<T>
                        : plan.values == 8            ? topk_rounds<T, 8>
                                                      : topk_rounds<T, 16>;
    kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), plan.shared_bytes, stream>>>(
        plan, static_cast<const T*>(in), values, indices);
  });
}
