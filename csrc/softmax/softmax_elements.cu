#include <bit>

#include "softmax/kernels/elements.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_elements(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
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
    const auto go = [&](auto kernel) {
      launch_clusters<true>(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), element_bytes<Value<T>>(plan), stream,
                            elements, static_cast<const T*>(in), static_cast<O*>(out));
    };
    if (plan.steps <= kElements) return go(softmax_elements<T, O, kElements>);
    go(softmax_elements<T, O, 2 * kElements>);
  });
}

}  // namespace xgemm::softmax
