// logsumexp, by online softmax's pairs.
#pragma once
#include "reduce/kernels/operators/operator.cuh"

namespace xgemm::reduce {

inline constexpr float kLn2 = 0.6931471805599453f;

/// The sum of e^(x - m), m finite or NaN and at least every x. In fp32 a term is 2^(x log2 e - m log2 e), one multiply-add and
/// one instruction of the special function unit; the rounding error of m log2 e is corrected once for the whole sum. For a
/// large m the error is too large to correct, and x - m is computed first.
template <int n, class V>
__device__ __forceinline__ V sum_of_exponentials(const V (&x)[n], V m) {
  const auto add = [](V a, V b) { return a + b; };
  if constexpr (std::is_same_v<V, float>) {
    if (fabsf(m) < 0x1p16f) {
      const float shift = __fmul_rn(m, kLog2E), p = -fmaf(m, kLog2E, -shift) * kLn2;  // e^-m = 2^-shift e^p, |p| < 2^-8
      const float sum = tree<n>([&](int i) { return exp2_approx(fmaf(x[i], kLog2E, -shift)); }, add);
      return sum * (1.0f + fmaf(0.5f * p, p, p));
    }
  }
  return tree<n>([&](int i) { return exp_of(x[i] - m); }, add);
}

/// (maximum m, sum of e^(x - m)): online softmax's pairs (Milakov and Gimelshein, arXiv 1805.02867).
template <class V>
struct alignas(2 * sizeof(V)) Pair {
  V maximum, sum;
};

template <class Element>
struct LogSumExp : SimpleLocal<LogSumExp<Element>, Pair<Value<Element>>> {
  using T = Element;
  using V = Value<T>;
  using State = Pair<V>;

  static __device__ __forceinline__ State identity() { return {minus_infinity<V>(), V{0}}; }
  static __device__ __forceinline__ V neutral() { return minus_infinity<V>(); }
  // An infinite maximum must not be subtracted from itself; 0 then gives exp(-inf) = 0 and exp(inf) = inf, as they should be.
  static __device__ __forceinline__ V base(V m) { return m == minus_infinity<V>() || m == -minus_infinity<V>() ? V{0} : m; }

  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V best, Position) {
    const V m = larger(s.maximum, best), b = base(m);
    s = {m, s.sum * exp_of(s.maximum - b) + sum_of_exponentials(x, b)};
  }
  static __device__ __forceinline__ State merge(State a, State b) {
    const V m = larger(a.maximum, b.maximum), c = base(m);
    return {m, a.sum * exp_of(a.maximum - c) + b.sum * exp_of(b.maximum - c)};
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.maximum, offset), __shfl_xor_sync(kFullWarp, s.sum, offset)};
  }
  /// Rescales the lanes' sums to their common maximum first: one exponential per lane instead of two per level.
  static __device__ __forceinline__ State join(State s, int lanes) {
    const V m = largest_of(s.maximum, lanes);
    s.sum *= exp_of(s.maximum - base(m));
    each_level(lanes, [&](int offset) { s.sum += __shfl_xor_sync(kFullWarp, s.sum, offset); });
    return {m, s.sum};
  }
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>&, State s, const NoExtra&, void* out,
                                                std::int64_t i) {
    if (plan.pairs)
      static_cast<State*>(out)[i] = s;
    else
      store_as(out, i, plan.out, base(s.maximum) + log(s.sum));
  }
};

}  // namespace xgemm::reduce
