// Cross-entropy of rows of logits, and the mean of its losses.
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

/// loss(m, log(sum), -log p(target)) for a target that counts; NaN for a target that is not a class and for an infinite
/// maximum, as in torch.
template <class T, class V, class F>
__device__ __forceinline__ void store_loss(const Reduction& plan, const Pair<V>& pair, const Target<T>& extra, void* out,
                                           std::int64_t i, const F& smooth) {
  V loss = static_cast<V>(plan.loss.ignored);
  if (extra.counts) {
    const V m = pair.maximum;
    loss = std::numeric_limits<V>::quiet_NaN();
    if (extra.exists && LogSumExp<T>::base(m) == m) {
      const V log_sum = log(pair.sum);
      loss = smooth(m, log_sum, log_sum - (convert<V>(extra.logit) - m));
      loss += V{0};  // -0 means ignored
    }
  }
  store_as(out, i, plan.out, loss);
}

/// Cross-entropy of a row of logits with a class index: log(sum(exp(x))) - x[target].
template <class Element>
struct CrossEntropy : LogSumExp<Element> {
  using V = Value<Element>;
  using Extra = Target<Element>;
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<Element>&, const Pair<V>& s,
                                                const Extra& extra, void* out, std::int64_t i) {
    store_loss(plan, s, extra, out, i, [](V, V, V nll) { return nll; });
  }
};

template <class V>
struct LossState {  // padded to 4 V by the pair's alignment
  Pair<V> pair;
  V total;
};

/// The same with label smoothing, which takes the plain sum too: also - mean(x).
template <class Element>
struct SmoothCrossEntropy : SimpleLocal<SmoothCrossEntropy<Element>, LossState<Value<Element>>> {
  using T = Element;
  using V = Value<T>;
  using State = LossState<V>;
  using Exponentials = LogSumExp<T>;
  using Extra = Target<T>;
  static constexpr bool kOrdered = false, kTotal = true;

  static __device__ __forceinline__ State identity() { return {Exponentials::identity(), V{0}}; }
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
  static __device__ __forceinline__ State join(State s, int lanes) {
    each_level(lanes, [&](int offset) { s.total += __shfl_xor_sync(kFullWarp, s.total, offset); });
    return {Exponentials::join(s.pair, lanes), s.total};
  }
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>&, const State& s, const Extra& extra,
                                                void* out, std::int64_t i) {
    store_loss(plan, s.pair, extra, out, i, [&](V m, V log_sum, V nll) {
      const V smoothing = static_cast<V>(plan.loss.smoothing);
      return (1 - smoothing) * nll + smoothing * (log_sum + (m - s.total / static_cast<V>(plan.length)));
    });
  }
};

template <class V>
struct alignas(2 * sizeof(V)) CountedSum {
  V sum, count;
};

/// The mean of the losses that are not -0; -0 marks an ignored target.
template <class Element>
struct MeanLoss : SimpleLocal<MeanLoss<Element>, CountedSum<Element>> {
  using Extra = NoExtra;
  using T = Element;
  using V = Element;
  using State = CountedSum<V>;
  static constexpr bool kOrdered = false;

  static __device__ __forceinline__ State identity() { return {V{0}, V{0}}; }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V, Position) {
    const auto add = [](V a, V b) { return a + b; };
    s.sum += tree<n>([&](int i) { return x[i]; }, add);
    s.count += tree<n>([&](int i) { return x[i] == 0 && signbit(x[i]) ? V{0} : V{1}; }, add);
  }
  static __device__ __forceinline__ State merge(State a, State b) { return {a.sum + b.sum, a.count + b.count}; }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.sum, offset), __shfl_xor_sync(kFullWarp, s.count, offset)};
  }
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    store_as(out, i, plan.out, s.sum / s.count);
  }
};

}  // namespace xgemm::reduce
