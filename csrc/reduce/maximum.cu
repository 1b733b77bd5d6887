// Maxima; minima are maxima of the flipped values.
#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/operator.cuh"

namespace xgemm::reduce {

template <class Element>
struct Maximum : SimpleLocal<Maximum<Element>, Value<Element>> {
  using T = Element;
  using V = Value<T>;
  using State = V;
  static constexpr bool kOrdered = true;

  static __device__ __forceinline__ State identity() { return minus_infinity<V>(); }
  static __device__ __forceinline__ V neutral() { return minus_infinity<V>(); }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&)[n], V best, Position) {
    s = larger(s, best);
  }
  static __device__ __forceinline__ State merge(State a, State b) { return larger(a, b); }
  static __device__ __forceinline__ State shuffle(State s, int offset) { return __shfl_xor_sync(kFullWarp, s, offset); }
  static __device__ __forceinline__ State join(State s, int lanes) { return largest_of(s, lanes); }
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>& convert, State s, const NoExtra&,
                                                void* out, std::int64_t i) {
    store_as(out, i, plan.out, convert.unflip(s));
  }
};

Launch* const launch_maximum = launch_floating<Maximum>;

}  // namespace xgemm::reduce
