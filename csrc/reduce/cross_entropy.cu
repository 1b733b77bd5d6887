// Cross-entropy of rows of logits.
#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/logsumexp.cuh"

namespace xgemm::reduce {

/// The target, loaded before the row is read, and its logit, before the lanes are joined; then the next target may be loaded.
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

/// Cross-entropy of a row of logits with a class index: nll = log(sum(exp(x))) - x[target]; with label smoothing s
/// (1 - s) nll + s (log(sum(exp(x))) - mean(x)), whose mean another reduction has computed.
template <class Element>
struct CrossEntropy : LogSumExp<Element> {
  using T = Element;
  using V = Value<T>;
  using State = Pair<V>;
  using Extra = Target<T>;

  /// NaN for a target that is not a class and for an infinite maximum, as in torch.
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>&, const State& s, const Extra& extra,
                                                void* out, std::int64_t i) {
    V loss = static_cast<V>(plan.loss.ignored);
    if (extra.counts) {
      const V m = s.maximum;
      loss = std::numeric_limits<V>::quiet_NaN();
      if (extra.exists && LogSumExp<T>::base(m) == m) {
        const V log_sum = log(s.sum);
        loss = log_sum - (xgemm::convert<V>(extra.logit) - m);
        if (plan.loss.means != nullptr) {
          const V smoothing = static_cast<V>(plan.loss.smoothing), mean = static_cast<const V*>(plan.loss.means)[i];
          loss = (1 - smoothing) * loss + smoothing * (log_sum + (m - mean));
        }
        loss += V{0};  // -0 means ignored
      }
    }
    store_as(out, i, plan.out, loss);
  }
};

Launch* const launch_cross_entropy = launch_floating<CrossEntropy>;

}  // namespace xgemm::reduce
