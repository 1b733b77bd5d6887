// Sums and means.
#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/operator.cuh"

namespace xgemm::reduce {

/// Sums and means: sums of trees in fp32 (fp64 for fp64).
template <class Element>
struct Sum : SimpleLocal<Sum<Element>, Value<Element>> {
  using T = Element;
  using V = Value<T>;
  using State = V;

  static __device__ __forceinline__ State identity() { return State{0}; }
  static __device__ __forceinline__ V neutral() { return V{0}; }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V, Position) {
    s += tree<n>([&](int i) { return x[i]; }, [](V a, V b) { return a + b; });
  }
  static __device__ __forceinline__ State merge(State a, State b) { return a + b; }
  static __device__ __forceinline__ State shuffle(State s, int offset) { return __shfl_xor_sync(kFullWarp, s, offset); }
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>&, State s, const NoExtra&, void* out,
                                                std::int64_t i) {
    store_as(out, i, plan.out, plan.kind == Kind::mean ? s / static_cast<State>(plan.length) : s);
  }
};

Launch* const launch_sum = launch_floating<Sum>;

}  // namespace xgemm::reduce
