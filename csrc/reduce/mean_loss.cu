// The mean of cross_entropy's losses, a contiguous row of the type in which they were computed.
#include "reduce/kernels/launch.cuh"
#include "reduce/kernels/operators/operator.cuh"

namespace xgemm::reduce {

template <class V>
struct alignas(2 * sizeof(V)) CountedSum {
  V sum, count;
};

/// The mean of the losses that are not -0; -0 marks an ignored target.
template <class Element>
struct MeanLoss : SimpleLocal<MeanLoss<Element>, CountedSum<Element>> {
  using T = Element;
  using V = Element;
  using State = CountedSum<V>;

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
  static __device__ __forceinline__ void finish(const Reduction& plan, const Convert<T>&, State s, const NoExtra&, void* out,
                                                std::int64_t i) {
    store_as(out, i, plan.out, s.sum / s.count);
  }
};

Launch* const launch_mean_loss = [](const Plan& plan, const void* in, void* out, const Workspace& workspace,
                                    cudaStream_t stream) {
  const RowPlan& rows = std::get<RowPlan>(plan.kernel);
  const auto mean = [&]<class Op>() { enqueue_rows<Op>(reduce_rows<Op>, rows, in, out, workspace, stream); };
  if (rows.in == DType::f32) return mean.template operator()<MeanLoss<float>>();
  mean.template operator()<MeanLoss<double>>();
};

}  // namespace xgemm::reduce
