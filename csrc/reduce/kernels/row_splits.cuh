// Distributes a row's splits over CTAs, and joins their states in order: in the row's CTA or, if CTAs share a row, in the first
// of their cluster or in the last of them to finish.
#pragma once
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

inline constexpr int kRowThreads = 256, kRowWarps = kRowThreads / kWarpSize;

/// CTAs per SM that the register budget must allow: four, fewer if a step's values alone need more registers.
template <class Op>
inline constexpr int kRowBlocks = [] {
  if (sizeof(typename Op::T) == 8) return 2;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  return 3;
#else
  return 4;
#endif
}();

/// Loads vectors v, v + lanes, ... of an aligned row, those below `end`; all of a step are if it is `complete`. p: vector v.
template <class Op>
__device__ __forceinline__ void load_aligned_step(const RowPlan& plan, uint4 (&raw)[kUnroll], const typename Op::T* p, int v,
                                                  int lanes, int end, bool complete) {
  constexpr int kWidth = Pack<typename Op::T>::kCount;
  if (complete) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) raw[j] = load_aligned16(p + j * lanes * kWidth);
  } else {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      raw[j] = padding<Op>(plan);
      if (v + j * lanes < end) raw[j] = load_aligned16(p + j * lanes * kWidth);
    }
  }
}

/// Joins get(0..count - 1), for thread 0, in an order that `count` alone decides (up to 32 states: for any number of threads).
template <class Op, class Get>
__device__ __forceinline__ typename Op::State join_block(std::int64_t count, const Get& get, typename Op::State* warps) {
  using State = typename Op::State;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  State s = Op::identity();
  for (std::int64_t i = threadIdx.x; i < count; i += kUnroll * blockDim.x) {
    State next[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const std::int64_t k = i + j * static_cast<std::int64_t>(blockDim.x);
      next[j] = k < count ? get(k) : Op::identity();
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) s = Op::merge(s, next[j]);
  }
  const int used = count < kWarpSize ? static_cast<int>(count) : kWarpSize;  // the other lanes hold nothing
  for (int offset = used > 1 ? 1 << (31 - __clz(used - 1)) : 0; offset > 0; offset /= 2) s = Op::merge(s, Op::shuffle(s, offset));
  if (blockDim.x == kWarpSize || count <= kWarpSize) return s;
  __syncthreads();  // the previous call may still read `warps`
  if (lane == 0) warps[warp] = s;
  __syncthreads();
  if (warp > 0) return s;
  s = lane < static_cast<int>(blockDim.x) / kWarpSize ? warps[lane] : Op::identity();
  for (int offset = kRowWarps / 2; offset > 0; offset /= 2) s = Op::merge(s, Op::shuffle(s, offset));
  return s;
}

/// The CTAs of a cluster send their splits' states to the first CTA, which continues when all have arrived.
template <class Op>
struct ClusterJoin {
  using State = typename Op::State;
  ptx::Barrier* arrived;
  /// Call it before anything else.
  __device__ __forceinline__ void open([[maybe_unused]] const RowPlan& plan) const {
#if __CUDA_ARCH__ >= 900
    if (plan.cluster == 1) return;
    if (threadIdx.x == 0) {
      ptx::barrier_init(arrived, 1);
      ptx::fence_barrier_init();
      const auto others = static_cast<std::uint32_t>(plan.splits - plan.per_cta);
      ptx::barrier_arrive_expect(arrived, others * static_cast<std::uint32_t>(sizeof(State)));
    }
    __syncwarp();  // the warp arrives converged
    ptx::cluster_arrive_relaxed();
#endif
  }
  /// states[0..count - 1] are this CTA's. Returns true in the first CTA, once it has the states of all.
  __device__ __forceinline__ bool send([[maybe_unused]] const State* states, [[maybe_unused]] int count) const {
#if __CUDA_ARCH__ >= 900
    using Word = std::conditional_t<sizeof(State) % 8 == 0, unsigned long long, unsigned>;
    __syncthreads();
    ptx::cluster_wait();  // the first CTA's barrier exists from here on
    if (ptx::cluster_rank() == 0) {
      ptx::barrier_wait(arrived, 0);
      return true;
    }
    const Word* const words = reinterpret_cast<const Word*>(states);
    for (int i = static_cast<int>(threadIdx.x); i < count * static_cast<int>(sizeof(State) / sizeof(Word)); i += blockDim.x)
      ptx::store_async(words + i, words[i], arrived, 0);
#endif
    return false;
  }
};

/// Finishes a row of several splits, in its CTA or in the last of its CTAs. `states`: of the `count` splits of this CTA.
template <class Op>
__device__ __forceinline__ void finish_row(const RowPlan& plan, const Convert<typename Op::T>& convert, int count,
                                           std::int64_t row, const typename Op::State* states, const typename Op::Extra& extra,
                                           void* out, std::int64_t output, unsigned* counters, typename Op::State* partials,
                                           const ClusterJoin<Op>& cluster) {
  using State = typename Op::State;
  __shared__ State warps[kRowWarps];
  State total = Op::identity();
  if (plan.cluster > 1) {
    if (!cluster.send(states + static_cast<std::int64_t>(blockIdx.x % plan.cluster) * plan.per_cta, count)) return;
    total = join_block<Op>(plan.splits, [&](std::int64_t i) { return states[i]; }, warps);
  } else if (plan.ctas_per_row == 1 || plan.grouped) {
    __syncthreads();
    total = join_block<Op>(count, [&](std::int64_t i) { return states[i]; }, warps);
  }
  if (plan.ctas_per_row > 1 && plan.cluster == 1) {
    if (plan.grouped && threadIdx.x == 0) partials[blockIdx.x] = total;
    if (!is_last_block(counters + row, plan.ctas_per_row)) return;
    const std::int64_t joined = plan.grouped ? plan.ctas_per_row : plan.splits;
    const State* mine = partials + row * joined;
    total = join_block<Op>(joined, [&](std::int64_t i) { return load_state(mine + i); }, warps);
  }
  if (threadIdx.x == 0) Op::finish(plan, convert, total, extra, out, output);
}

/// What a CTA takes: if `whole`, rows of one split from `first` on, else splits of `row`.
struct RowWork {
  std::int64_t row, first;
  int count;
};
/// The compiler computes it again at each use, so that no register keeps it in between.
__device__ __forceinline__ RowWork work_of_cta(const RowPlan& plan, bool whole) {
  unsigned cta = blockIdx.x;
  asm volatile("" : "+r"(cta));
  std::int64_t row = 0, part = cta;
  if (!whole) {
    row = cta / static_cast<unsigned>(plan.ctas_per_row);
    part -= row * plan.ctas_per_row;
  }
  const std::int64_t first = part * plan.per_cta;
  return {row, first, static_cast<int>(min(plan.per_cta, (whole ? plan.outputs : plan.splits) - first))};
}

/// Memory for the states of splits from `first` on of `row` until finish_row; `states` is the CTA's shared memory.
template <class State>
__device__ __forceinline__ State* place_of_states(const RowPlan& plan, State* states, State* partials, std::int64_t row,
                                                  std::int64_t first) {
  if (plan.cluster > 1) return states + first;
  return plan.ctas_per_row > 1 && !plan.grouped ? partials + row * plan.splits + first : states;
}

}  // namespace xgemm::reduce
