// Cross-entropy of rows of logits.
#pragma once
#include "reduce/kernels/operators/logsumexp.cuh"

namespace xgemm::reduce {

/// The target, loaded before the row is read, and its logit, loaded before the lanes are joined; then the next target may be
/// loaded.
template <class T>
struct Target {
  std::int64_t target;
  T logit;  // converted at its use: converting waits for the load
  bool counts, exists;
  __device__ __forceinline__ void aim(const Reduction& plan, std::int64_t i) { target = plan.loss.target[i]; }
  template <bool kPlain>
  __device__ __forceinline__ void look(const Reduction& plan, const T* row) {
    counts = target != plan.loss.ignore_index;
    exists = target >= 0 && target < plan.length;
    if (exists) logit = row[kPlain ? target : plan.reduced.offset(target)];
  }
};

template <class V>
struct LossState {  // padded to 4 V by the pair's alignment
  Pair<V> pair;
  V total;  ///< with label smoothing the plain sum of the logits, else 0
};

/// Cross-entropy of a row of logits with a class index: nll = log(sum(exp(x))) - x[target]; with label smoothing s
/// (1 - s) nll + s (log(sum(exp(x))) - mean(x)).
template <class Element>
struct CrossEntropy {
  using T = Element;
  using V = Value<T>;
  using State = LossState<V>;
  using Local = State;
  using Exponentials = LogSumExp<T>;
  using Extra = Target<T>;
  static constexpr bool kOrdered = false, kTotal = true, kFindsLater = false;

  static __device__ __forceinline__ State identity() { return {Exponentials::identity(), V{0}}; }
  static __device__ __forceinline__ State start() { return identity(); }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V best, Position position) {
    Exponentials::push(s.pair, x, best, position);
  }
  /// The plain sum of the same values, without padding.
  template <int n, class Exists>
  static __device__ __forceinline__ void push_total(State& s, const V (&x)[n], Exists exists) {
    s.total += tree<n>([&](int i) { return exists(i) ? x[i] : V{0}; }, [](V a, V b) { return a + b; });
  }
  static __device__ __forceinline__ State merge(State a, State b) {
    return {Exponentials::merge(a.pair, b.pair), a.total + b.total};
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {Exponentials::shuffle(s.pair, offset), __shfl_xor_sync(kFullWarp, s.total, offset)};
  }
  template <class Fetch>
  static __device__ __forceinline__ State state(State s, const Convert<T>& convert, int lanes, bool, std::int64_t, const Fetch&) {
    if (convert.smooths) each_level(lanes, [&](int offset) { s.total += __shfl_xor_sync(kFullWarp, s.total, offset); });
    return {Exponentials::join(s.pair, lanes), s.total};
  }
  /// NaN for a target that is not a class and for an infinite maximum, as in torch.
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>& convert, const State& s,
                                                const Extra& extra, void* out, std::int64_t i) {
    V loss = static_cast<V>(plan.loss.ignored);
    if (extra.counts) {
      const V m = s.pair.maximum;
      loss = std::numeric_limits<V>::quiet_NaN();
      if (extra.exists && Exponentials::base(m) == m) {
        const V log_sum = log(s.pair.sum);
        loss = log_sum - (xgemm::convert<V>(extra.logit) - m);
        if (convert.smooths) {
          const V smoothing = static_cast<V>(plan.loss.smoothing);
          loss = (1 - smoothing) * loss + smoothing * (log_sum + (m - s.total / static_cast<V>(plan.length)));
        }
        loss += V{0};  // -0 means ignored
      }
    }
    store_as(out, i, plan.out, loss);
  }
};

/// The same without label smoothing, for columns: a plain sum for each of a thread's columns takes too many registers.
template <class Element>
struct PlainCrossEntropy : LogSumExp<Element> {
  using Extra = Target<Element>;
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<Element>& convert,
                                                const Pair<Value<Element>>& s, const Extra& extra, void* out, std::int64_t i) {
    CrossEntropy<Element>::finish(plan, convert, {s, 0}, extra, out, i);
  }
};

}  // namespace xgemm::reduce
