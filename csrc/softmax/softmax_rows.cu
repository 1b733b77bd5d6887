#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/rows.cuh"

namespace xgemm::softmax {

void launch_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const auto go = [&](auto kernel) {
      kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), 0, stream>>>(
          rows_of(plan), static_cast<const T*>(in), static_cast<O*>(out));
    };
    constexpr int kSteps = sizeof(T) == 4 ? 8 : 4, kOther = 12 - kSteps;
    const bool aligned = plan.aligned && plan.kept.dims <= 1 && (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0 &&
                         plan.length * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
    if constexpr (std::is_same_v<T, float> || (std::is_same_v<T, bf16> && std::is_same_v<O, bf16>)) {
      if (plan.vectors == 2 && aligned) return go(softmax_rows<T, O, 2, true>);
      if (plan.vectors == kOther && aligned) return go(softmax_rows<T, O, kOther, true>);
    }
    if (aligned) return go(softmax_rows<T, O, kSteps, true>);
    go(softmax_rows<T, O, kSteps, false>);
  });
}

}  // namespace xgemm::softmax
