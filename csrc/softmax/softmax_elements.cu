#include <bit>

#include "softmax/kernels/elements.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_elements(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    if constexpr (std::is_same_v<T, O>) {
      const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
      if (plan.length == 1 && addresses && (plan.outer == 1 || plan.kept.stride[0] == 1)) {
        const std::int64_t threads = (plan.outer + Pack<T>::kCount - 1) / Pack<T>::kCount;
        const Grid grid{.blocks = dim3(static_cast<unsigned>((threads + kElementThreads - 1) / kElementThreads)),
                        .threads = dim3(kElementThreads),
                        .early = true};
        return enqueue(softmax_ones<T>, grid, stream, static_cast<const T*>(in), static_cast<T*>(out), plan.outer,
                       static_cast<Value<T>>(plan.log ? 0 : 1));
      }
    }
    const Elements elements{.count = plan.outer * plan.columns,
                            .stride = plan.kept.stride[0],
                            .length_stride = plan.length_stride,
                            .columns = static_cast<int>(plan.columns),
                            .length = static_cast<int>(plan.length),
                            .steps = plan.steps,
                            .by_columns = ShortDivider::of(plan.columns),
                            .log2_beside = std::countr_zero(static_cast<unsigned>(plan.beside)),
                            .log2_lanes = std::countr_zero(static_cast<unsigned>(plan.lanes)),
                            .log = plan.log};
    launch_clusters<true>(softmax_elements<T, O>, plan, dim3(static_cast<unsigned>(plan.threads)), element_bytes<Value<T>>(plan),
                          stream, elements, static_cast<const T*>(in), static_cast<O*>(out));
  });
}

}  // namespace xgemm::softmax
