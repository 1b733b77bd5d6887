// Reduces rows. A short row is one strip, of `lanes` (1 to 32) threads; a longer one is cut into strips, a warp each, whose
// states are joined in order: by the row's block, or, when blocks share a row, by the last of them to finish.
//
// Layouts: any strides. With plan.vector the row is made of runs of stride 1 and is read 16 bytes at a time at any alignment;
//   otherwise element by element. With plan.pieces a strip is part of one run. Which thread reads which element depends on the
//   row's length and strides only, not on its address, and the order of additions not on how strips (or short rows) are shared
//   out over warps and blocks.
// Architectures: sm_80 and later. Limits: none but IndexMap's dims; 64-bit positions, 32-bit ones within a strip.
// Floor: length * sizeof(T) bytes a row read once; one operation an element (logsumexp: one exp). Loads and arithmetic overlap
//   between warps: 32 an SM, each with 2 KB under way.
#pragma once
#include "device/ptx/cluster_exchange.cuh"
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

inline constexpr int kRowThreads = 256, kRowWarps = kRowThreads / kWarpSize;

/// CTAs per SM that the register budget must allow: four, fewer where a step's values alone need more registers.
template <class Op>
inline constexpr int kRowBlocks = [] {
  using T = typename Op::T;
  if (sizeof(T) == 8) return Op::kTotal ? 1 : 2;
  if (sizeof(T) == 1) return 2;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  return Op::kTotal ? 2 : 3;
#else
  return std::is_integral_v<T> || Op::kTotal ? 3 : 4;
#endif
}();

/// The same while the next row's vectors are loaded beside this row's state. ptxas converts all fp16 values at once, before
/// their exponentials; before sm_90 that is one register too many for three CTAs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr int kHalfRowBlocks = 2;
#else
inline constexpr int kHalfRowBlocks = 3;
#endif
template <class Op>
inline constexpr int kRunBlocks = std::is_same_v<typename Op::T, half> && !Op::kOrdered && sizeof(typename Op::State) > 4
                                      ? kHalfRowBlocks - (Op::kTotal && kHalfRowBlocks > 2 ? 1 : 0)
                                      : kRowBlocks<Op>;

/// The same with the registers of byte shifts.
template <class Op, bool kStrips>
inline constexpr int kShiftedBlocks = [] {
  using T = typename Op::T;
  const bool more = (!kStrips && !std::is_same_v<typename Op::Extra, NoExtra>) || (Op::kFindsLater && sizeof(T) == 4) ||
                    (std::is_same_v<T, half> && sizeof(typename Op::State) > 4);
  return kRunBlocks<Op> - (more && kRunBlocks<Op> > 1 ? 1 : 0);
}();

/// Joins get(0..count - 1) in an order that `count` alone decides (with up to 32 states, for any number of threads); thread 0
/// gets the result.
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

/// The CTAs of a cluster send their strips' states to the first CTA, which continues when all have arrived
/// (device/ptx/mbarrier.cuh).
template <class Op>
struct Meeting {
  using State = typename Op::State;
  ptx::Barrier* arrived;
  /// Before anything else.
  __device__ __forceinline__ void open([[maybe_unused]] const Plan& plan) const {
#if __CUDA_ARCH__ >= 900
    if (plan.cluster == 1) return;
    if (threadIdx.x == 0) {
      ptx::barrier_init(arrived, 1);
      ptx::fence_barrier_init();
      const auto others = static_cast<std::uint32_t>(plan.strips - plan.per_block);
      ptx::barrier_arrive_expect(arrived, others * static_cast<std::uint32_t>(sizeof(State)));
    }
    __syncwarp();  // a warp arrives as one
    ptx::cluster_arrive_relaxed();
#endif
  }
  /// states[0..count - 1] are this CTA's. Returns true in the first CTA, once it has the states of all.
  __device__ __forceinline__ bool send([[maybe_unused]] const State* states, [[maybe_unused]] int count) const {
#if __CUDA_ARCH__ >= 900
    using Word = std::conditional_t<sizeof(State) % 8 == 0, unsigned long long, unsigned>;
    __syncthreads();
    ptx::cluster_wait();  // the first block's barrier exists from here on
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

/// Finishes a row of several strips, in its CTA or in the last of its CTAs: joins the states of this CTA's `units` strips, or
/// those of all CTAs.
template <class Op>
__device__ __forceinline__ void finish_row(const Plan& plan, const Convert<typename Op::T>& convert, int units, std::int64_t row,
                                           const typename Op::State* states, const typename Op::Extra& extra, void* out,
                                           std::int64_t output, unsigned* counters, typename Op::State* partials,
                                           const Meeting<Op>& meeting) {
  using State = typename Op::State;
  __shared__ State warps[kRowWarps];
  State total = Op::identity();
  if (plan.cluster > 1) {
    if (!meeting.send(states + static_cast<std::int64_t>(blockIdx.x % plan.cluster) * plan.per_block, units)) return;
    total = join_block<Op>(plan.strips, [&](std::int64_t i) { return states[i]; }, warps);
  } else if (plan.split == 1 || plan.grouped) {
    __syncthreads();
    total = join_block<Op>(units, [&](std::int64_t i) { return states[i]; }, warps);
  }
  if (plan.split > 1 && plan.cluster == 1) {
    if (plan.grouped && threadIdx.x == 0) partials[blockIdx.x] = total;
    if (!is_last_block(counters + row, plan.split)) return;
    const std::int64_t joined = plan.grouped ? plan.split : plan.strips;
    const State* mine = partials + row * joined;
    total = join_block<Op>(joined, [&](std::int64_t i) { return load_state(mine + i); }, warps);
  }
  if (threadIdx.x == 0) Op::finish(plan, convert, total, extra, out, output);
}

/// Dynamic shared memory of a CTA: the states of its strips (or its cluster's) and no more, because an SM holds many CTAs of
/// one warp.
template <class Op>
std::size_t row_shared_bytes(const Plan& plan) {
  if (plan.strips == 1) return 0;
  return static_cast<std::size_t>(plan.cluster > 1 ? plan.strips : plan.per_block) * sizeof(typename Op::State);
}

/// A CTA's share: if `whole`, rows of one strip from `first` on, else strips of `row`.
struct Share {
  std::int64_t row, first;
  int units;
};
__device__ __forceinline__ Share share_of(const Plan& plan, bool whole) {
  std::int64_t row = 0, part = blockIdx.x;
  if (!whole) {
    row = blockIdx.x / static_cast<unsigned>(plan.split);
    part -= row * plan.split;
  }
  const std::int64_t first = part * plan.per_block;
  return {row, first, static_cast<int>(min(plan.per_block, (whole ? plan.outputs : plan.strips) - first))};
}

/// Layouts of reduce_runs, whose rows are evenly spaced. Whole vectors at aligned addresses, by all lanes of a warp (warps) or
/// fewer (parts); any number of elements at any address, of one strip (shifted_rows) or several (shifted_strips; these rows may
/// lie anywhere and consist of several runs). none: any other layout.
enum class Runs : std::uint8_t { none, warps, parts, shifted_rows, shifted_strips };

/// Evenly spaced rows of stride 1, in the order of reduce_rows but without the code for other layouts, which would take most of
/// a short row's issue slots. The first vectors of a strip (or short row) are loaded before the lanes of the previous one are
/// joined. The results of as many short rows as a row has lanes are stored together.
template <class Op, Runs kRuns>
__global__ void __launch_bounds__(kRowThreads,
                                  kRuns < Runs::shifted_rows ? kRunBlocks<Op> : kShiftedBlocks<Op, kRuns == Runs::shifted_strips>)
    reduce_runs(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount;
  constexpr bool kShifted = kRuns == Runs::shifted_rows || kRuns == Runs::shifted_strips,
                 kWarp = kRuns == Runs::warps || kRuns == Runs::shifted_strips;
  extern __shared__ uint4 shared[];
  State* const states = reinterpret_cast<State*>(shared);
  __shared__ ptx::Barrier arrived;
  const Meeting<Op> meeting{&arrived};
  meeting.open(plan);
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const Convert<T> convert(plan);
  const int lanes = kWarp ? kWarpSize : plan.lanes, log2_lanes = kWarp ? 5 : 31 - __clz(lanes), step = kUnroll * lanes;
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1),
            teams = static_cast<int>(blockDim.x) >> log2_lanes;
  // Where addresses matter the short rows of a warp are eight rows apart, so that all have the same misalignment.
  const int slot = (thread % kWarpSize) >> log2_lanes, apart = kShifted ? kRowWarps : 1;
  const int team = kShifted ? slot * kRowWarps + thread / kWarpSize : thread >> log2_lanes;
  // The units of a block's work are short rows, else strips of one row.
  const bool whole = !kWarp || (kRuns == Runs::warps && plan.strips == 1);
  const auto [row, first, units] = share_of(plan, whole);
  State* const kept_states = plan.cluster > 1                  ? states + first
                             : plan.split > 1 && !plan.grouped ? partials + row * plan.strips + first
                                                               : states;
  const std::int64_t pitch = plan.kept.stride[0], unit_pitch = whole ? pitch : plan.chunk * kWidth;
  constexpr bool kAnywhere = kRuns == Runs::shifted_strips;
  IndexMap::Pair at{row * pitch, row};
  if constexpr (kAnywhere) at = plan.kept.offsets(row);
  const T* const begin_of_row = in + at.in;
  // A strip's place within its run, where a row has several runs.
  const auto piece_of = [&](int unit) {
    const std::int64_t strip = first + unit;
    return kAnywhere && plan.pieces > 0 ? strip - strip / plan.pieces * plan.pieces : strip;
  };
  const auto base_of = [&](int unit) {
    if constexpr (kAnywhere)
      if (plan.pieces > 0 && unit < units)
        return begin_of_row + plan.reduced.offset((first + unit) / plan.pieces * plan.run) + piece_of(unit) * unit_pitch;
    return begin_of_row + (first + unit) * unit_pitch;
  };
  const T* base = base_of(team);
  const auto vectors_of = [&](int unit) {
    if (unit >= units) return 0;
    return static_cast<int>(whole ? plan.full : min(plan.chunk, plan.full - piece_of(unit) * plan.chunk));
  };
  const int rest = kShifted ? static_cast<int>(plan.run % kWidth) : 0;  // elements behind a run's last whole vector
  const std::int64_t last_piece = (kAnywhere && plan.pieces > 0 ? plan.pieces : plan.strips) - 1;
  const auto rest_of = [&](int unit) { return unit < units && (whole || piece_of(unit) == last_piece) ? rest : 0; };

  [[maybe_unused]] const ShiftedRows<T> shifted{lanes, lane};
  [[maybe_unused]] uint4 behind;
  uint4 raw[kUnroll];
  const auto fetch = [&](const T* p, int from, int vectors) {
    if constexpr (kShifted) return shifted.ask(p, from, vectors, raw, behind, [&] { return in + plan.last + 1; });
    p += (from + lane) * kWidth;
    if (from + step <= vectors) {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) raw[j] = load_aligned16(p + j * lanes * kWidth);
    } else {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        raw[j] = padding<Op>(plan);
        if (from + lane + j * lanes < vectors) raw[j] = load_aligned16(p + j * lanes * kWidth);
      }
    }
  };
  typename Op::Extra extra{};  // of whole rows, that of the row that this lane finishes
  if (whole ? lane == 0 && team < units : threadIdx.x == 0) extra.aim(plan, whole ? first + team : at.out);
  int vectors = vectors_of(team);
  fetch(base, 0, vectors);

  const bool joint = Op::kFindsLater && !whole, now = plan.strips <= 4;  // as reduce_rows has it
  typename Op::Local s = Op::start();
  State kept = Op::identity();
  // Lanes of a warp may work on different rows; all take as many units and steps as the first.
  const int leader_gap = slot * apart;
  int finisher = 0;  // the lane of this row's result
  for (int unit = team; unit - leader_gap < units; unit += teams) {
    const int origin = joint ? unit * static_cast<int>(plan.chunk) : 0, count = whole ? static_cast<int>(plan.full) : vectors;
    if (!joint) s = Op::start();
    for (int from = 0;;) {
      if constexpr (kShifted) shifted.take(misalignment(base), from, vectors, raw, behind, padding<Op>(plan));
      push_step<Op>(convert, s, raw, (origin + from + lane) * kWidth, lanes * kWidth, vectors * kWidth, now);
      from += step;
      if (from >= count) break;
      fetch(base, from, vectors);
    }
    if constexpr (kShifted) {
      const int singles = rest_of(unit);
      for (int e = lane; e < singles; e += lanes)
        push_single<Op>(convert, s, base[vectors * kWidth + e], (origin + vectors) * kWidth, e, now);
    }
    const bool last = unit + teams - leader_gap >= units;
    if (whole && lane == finisher && unit < units) extra.template look<true>(plan, base);
    const auto advance = [&] {
      if (last) return;
      if constexpr (kAnywhere)
        base = base_of(unit + teams);
      else
        base += teams * unit_pitch;
      vectors = vectors_of(unit + teams);
      if (whole && lane == ((finisher + 1) & (lanes - 1)) && unit + teams < units) extra.aim(plan, first + unit + teams);
      fetch(base, 0, vectors);
    };
    if constexpr (!kShifted) advance();  // shifts leave no registers for the next row's vectors
    const std::int64_t start = whole ? 0 : (first + unit) * plan.chunk;
    const auto again = [&](uint4(&found)[kUnroll], std::uint32_t position) {
      const T* p = begin_of_row + (start - origin) * kWidth + position;
      const std::int64_t left = plan.full - (start - origin) - position / kWidth;  // vectors, from the first of this step on
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        found[j] = padding<Op>(plan);
        if constexpr (kShifted) {
          if (j * lanes < left) found[j] = load_shifted16(p + j * lanes * kWidth);
        } else {
          if (j * lanes < left) found[j] = load_aligned16(p + j * lanes * kWidth);
        }
      }
      if constexpr (kShifted)
        if (left <= 0) found[0] = load_singles(p, rest, found[0]);
    };
    State joined = Op::identity();
    if (!joint || last) joined = Op::state(s, convert, lanes, now, (start - origin) * kWidth, again);
    if constexpr (kShifted) advance();
    if (!whole) {
      if (lane == 0) kept_states[unit] = joined;
      continue;
    }
    if constexpr (Op::kFindsLater) {  // only an index to store, and no register to keep it in
      if (lane == 0 && unit < units) Op::finish(plan, convert, joined, extra, out, first + unit);
      continue;
    }
    if (lane == finisher) kept = joined;
    if (++finisher < lanes && !last) continue;
    const int mine = unit - (finisher - 1 - lane) * teams;
    if (lane < finisher && mine < units) Op::finish(plan, convert, kept, extra, out, first + mine);
    finisher = 0;
  }
  if constexpr (kWarp) {
    if (whole) return;
    if (threadIdx.x == 0) extra.template look<true>(plan, begin_of_row);
    finish_row<Op>(plan, convert, units, row, states, extra, out, at.out, counters, partials, meeting);
  }
}

template <class Op>
__global__ void __launch_bounds__(kRowThreads, kRowBlocks<Op>)
    reduce_rows(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using V = typename Op::V;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount;
  extern __shared__ uint4 shared[];
  State* const states = reinterpret_cast<State*>(shared);
  __shared__ ptx::Barrier arrived;
  const Meeting<Op> meeting{&arrived};
  meeting.open(plan);
  ptx::grid_release();
  in = ptx::grid_wait(in);

  const Convert<T> convert(plan);
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int teams = static_cast<int>(blockDim.x) / lanes;
  const bool whole = plan.strips == 1;  // the units of a block's work are rows of one strip, else strips of one row
  const auto [row, first, units] = share_of(plan, whole);
  State* const kept_states = plan.cluster > 1                  ? states + first
                             : plan.split > 1 && !plan.grouped ? partials + row * plan.strips + first
                                                               : states;
  const bool run = plan.vector && plan.reduced.dims == 1;
  IndexMap::Pair at{0, 0};
  if (!whole) at = plan.kept.offsets(row);

  typename Op::Extra extra{};
  if (!whole && threadIdx.x == 0) extra.aim(plan, at.out);
  typename Op::Local s = Op::start();
  // Lanes of a warp may work on different rows; all take the same number of steps.
  const int behind = (static_cast<int>(threadIdx.x) % kWarpSize) >> (31 - __clz(lanes));
  for (int unit = static_cast<int>(threadIdx.x) / lanes; unit - behind < units; unit += teams) {
    const bool exists = unit < units;
    if (whole && exists) at = plan.kept.offsets(first + unit);
    const T* base = in + at.in;
    const std::int64_t start = whole ? 0 : (first + unit) * plan.chunk, end = min(start + plan.chunk, plan.vectors);
    const int steps_end = static_cast<int>(max(min(plan.full - start, plan.chunk), std::int64_t{0})),
              count = exists ? steps_end : 0;
    const bool aligned = misalignment(base) == 0;
    // Vectors v, v + lanes, ... of the row below `limit`, at any alignment; or the one that may be incomplete.
    const auto fetch_full = [&](uint4(&raw)[kUnroll], std::int64_t v, std::int64_t limit) {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        raw[j] = padding<Op>(plan);
        if (v + j * lanes < limit) raw[j] = load_shifted16(base + plan.reduced.offset((v + j * lanes) * kWidth));
      }
    };
    const auto fetch_other = [&](std::int64_t v) {
      Pack<T> pack = as_pack<T>(padding<Op>(plan));
      const std::int64_t first_element = v * kWidth;
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (first_element + e < plan.length) pack.values[e] = base[plan.reduced.offset(first_element + e)];
      return as_raw(pack);
    };

    // argmax and argmin look for the position once in all of a warp's strips.
    const bool joint = Op::kFindsLater && !whole, now = plan.strips <= 4;  // look at once: reading again costs more
    const int origin = joint ? unit * static_cast<int>(plan.chunk) : 0;
    if (!joint) s = Op::start();
    if (whole && lane == 0 && exists) extra.aim(plan, at.out);
    for (int step = 0; step < steps_end; step += kUnroll * lanes) {
      const int v = step + lane;
      uint4 raw[kUnroll];
      const T* p = base + (start + v) * kWidth;
      const bool complete = step + kUnroll * lanes <= count;
      if (run && aligned && complete) {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) raw[j] = load_aligned16(p + j * lanes * kWidth);
      } else if (run && aligned) {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          raw[j] = padding<Op>(plan);
          if (v + j * lanes < count) raw[j] = load_aligned16(p + j * lanes * kWidth);
        }
      } else if (run && !aligned && complete && lanes == kWarpSize && start + step + kUnroll * kWarpSize < plan.full) {
        load_warp_shifted16(p, raw);
      } else {
        fetch_full(raw, start + v, start + count);
      }
      push_step<Op>(convert, s, raw, (origin + v) * kWidth, lanes * kWidth, count * kWidth, now);
    }
    const int rest = exists ? static_cast<int>(end - start) : 0;
    if (plan.vector) {  // the row's incomplete last vector
      const int singles = steps_end < rest ? static_cast<int>(plan.length % kWidth) : 0;
      for (int e = lane; e < singles; e += lanes) {
        const T single = base[plan.reduced.offset((start + steps_end) * kWidth + e)];
        push_single<Op>(convert, s, single, (origin + steps_end) * kWidth, e, now);
      }
    } else {
      for (int v = steps_end + lane; v < rest; v += lanes) {
        uint4 raw[1] = {fetch_other(start + v)};
        push_step<Op>(convert, s, raw, (origin + v) * kWidth, 0,
                      static_cast<int>(min(plan.length - start * kWidth, INT64_C(0x7fffffff))), now);
      }
    }
    if (whole && lane == 0 && exists) extra.template look<false>(plan, base);
    State joined = Op::identity();
    if (!joint || unit + teams >= units) {
      joined = Op::state(s, convert, lanes, now, (start - origin) * kWidth, [&](uint4(&raw)[kUnroll], std::uint32_t position) {
        const std::int64_t v = start - origin + position / kWidth;
        fetch_full(raw, v, plan.full);
        if (v >= plan.full) raw[0] = fetch_other(v);
      });
    }
    if (lane != 0 || !exists) continue;
    if (whole)
      Op::finish(plan, convert, joined, extra, out, at.out);
    else
      kept_states[unit] = joined;
  }
  if (whole) return;

  if (threadIdx.x == 0) extra.template look<false>(plan, in + at.in);
  finish_row<Op>(plan, convert, units, row, states, extra, out, at.out, counters, partials, meeting);
}

}  // namespace xgemm::reduce
