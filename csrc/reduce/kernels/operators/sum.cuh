// Sums and means.
#pragma once
#include "reduce/kernels/operators/operator.cuh"

namespace xgemm::reduce {

template <class T>
using SumState = Accumulator<std::conditional_t<std::is_same_v<T, Byte>, std::int32_t, T>>;

/// Sums and means: fp32 (fp64 for fp64) sums of trees; integers exactly, in int64.
template <class Element>
struct Sum : SimpleLocal<Sum<Element>, SumState<Element>> {
  using Extra = NoExtra;
  using T = Element;
  using V = Value<T>;
  using State = SumState<T>;
  static constexpr bool kOrdered = false;
  // The sum of one step of 16-bit or 8-bit integers fits int32; of int32 it does not.
  using Step = std::conditional_t<std::is_same_v<T, std::int32_t>, std::int64_t, V>;

  static __device__ __forceinline__ State identity() { return State{0}; }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V, Position) {
    s += tree<n>([&](int i) { return static_cast<Step>(x[i]); }, [](Step a, Step b) { return a + b; });
  }
  static __device__ __forceinline__ State merge(State a, State b) { return a + b; }
  static __device__ __forceinline__ State shuffle(State s, int offset) { return __shfl_xor_sync(kFullWarp, s, offset); }
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    if constexpr (std::is_floating_point_v<State>)
      if (plan.kind == Kind::mean) s = s / static_cast<State>(plan.length);
    store_as(out, i, plan.out, s);
  }
};

}  // namespace xgemm::reduce
