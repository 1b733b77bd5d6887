// Arithmetic of the online softmax, shared by the tile and merge kernels: both give the same bits for the same splits. A row's
// state is its running maximum, the sum of exp(score - maximum), and the sum of exp(score - maximum) * value.
#pragma once
#include "attention/simt/launch.h"
#include "device/numeric.cuh"

namespace xgemm::attention {

/// What is subtracted from the scores of a row with maximum `m`: 0 for -inf (no key yet) and +inf, where m - m would be NaN; a
/// +inf score then gives weight inf, sum inf and output NaN, as softmax does.
template <class Acc>
__device__ __forceinline__ Acc anchor(Acc m) {
  return isinf(m) ? Acc(0) : m;
}

/// Factor for sums kept relative to maximum `from` when the maximum becomes `to`.
template <class Acc>
__device__ __forceinline__ Acc rescale(Acc from, Acc to) {
  return from == -Acc(INFINITY) ? Acc(0) : exp_of(anchor(from) - anchor(to));
}

/// Sum of two splits, each times its factor, with an explicit contraction to a multiply-add.
template <class Acc>
__device__ __forceinline__ Acc merged(Acc a, Acc factor_a, Acc b, Acc factor_b) {
  return fma(a, factor_a, b * factor_b);
}

/// The output of a row; 0 if the row sees no key.
template <class Acc>
__device__ __forceinline__ Acc normalised(Acc output, Acc sum, Acc inverse_sum) {
  return sum == Acc(0) ? Acc(0) : output * inverse_sum;
}

/// Natural log-sum-exp of a row's scores.
template <class Acc>
__device__ __forceinline__ Acc log_sum(Acc m, Acc sum) {
  return sum == Acc(0) ? -Acc(INFINITY) : anchor(m) + log(sum);
}

/// Keys [begin, end) that the query at `position` may see; none if end <= begin.
__device__ __forceinline__ int keys_begin(const Arguments& a, int position) {
  const std::int64_t begin = position + a.first;
  return static_cast<int>(begin < 0 ? 0 : begin > a.sk ? a.sk : begin);
}
__device__ __forceinline__ int keys_end(const Arguments& a, int position) {
  const std::int64_t end = position + a.last;
  return static_cast<int>(end < 0 ? 0 : end > a.sk ? a.sk : end);
}

/// Adds the sink, if there are any, to the state of an output row, as the score of one more key without a value; returns the
/// factor of the row's outputs.
template <class Acc>
__device__ __forceinline__ Acc finish_row(const Arguments& a, std::int64_t row, Acc& maximum, Acc& sum) {
  if (a.sinks.data == nullptr) return 1 / sum;
  const auto head = static_cast<std::uint32_t>(row / a.sq), group = static_cast<std::uint32_t>(a.group);
  std::int64_t place = head % group * a.sinks.group;
  std::uint32_t rest = head / group;
  for (int i = a.batch_dims - 1; i >= 0; --i) {
    place += rest % a.batch_sizes[i] * a.sinks.batch[i];
    rest /= a.batch_sizes[i];
  }
  Acc sink;
  const auto load = [&](auto type) {
    using T = typename decltype(type)::type;
    sink = convert<Acc>(static_cast<const T*>(a.sinks.data)[place]);
  };
  if (a.sinks_dtype == DType::f32)
    load(Type<float>{});
  else
    with_element_type<Acc>(a.sinks_dtype, load);
  const Acc both = fmax(maximum, sink);
  const Acc factor = rescale(maximum, both), weight = exp_of(sink - anchor(both));
  maximum = both, sum = merged(sum, factor, weight, Acc(1));
  return fma(Acc(0), weight, factor) / sum;  // as softmax: NaN if the sink is inf or NaN
}

}  // namespace xgemm::attention
