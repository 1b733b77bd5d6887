// Reduces a dim that is not the fastest. A CTA takes a tile of neighbouring columns: `lanes` threads of 16 bytes side by side,
// and threads / lanes positions at a time. Long columns are divided into splits, a CTA each; the last CTA of a tile to finish
// joins the splits' states in order. Folded: neighbouring columns belong to one output (a run of an inner reduced dim, or several
// short positions side by side) and are joined before a split's results are written.
//
// Layouts: any strides. With plan.vector neighbouring columns have stride 1 and are read 16 bytes at a time at any alignment,
//   else element by element. A thread whose positions all have the same misalignment reads aligned blocks (blocks_loaded), and
//   its states move to their columns at the end; otherwise a vector is two blocks and a shift.
// Order of additions: four positions of a thread as a tree, its trees in order, the threads of a column, then its splits.
// Architectures: sm_80 and later. Limits: IndexMap's dims; 64-bit positions.
// Floor: every element read once; a tile's partial results are 1 / (16 .. 128 steps) of that.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/column_states.cuh"

namespace xgemm::reduce {

/// Steps of kUnroll 16-byte loads that a thread keeps in flight: two if its parts take few registers.
template <class Op>
inline constexpr int kColumnSteps = sizeof(Part<Op>) == 4 ? 2 : 1;

/// CTAs per SM that the register budget must allow: 1024 threads, fewer if an element alone takes more registers.
template <class Op>
inline constexpr int kColumnBlocks = [] {
  constexpr int kThreads = std::is_same_v<typename Op::T, double> ? 512 : 1024;
  return (3 * (kThreads / kColumnThreads<Op>)+3) / 4;
}();

/// Loads an aligned vector that is read once. Without L1 16-bit columns are 1 to 3 % faster, 64 fp32 rows of millions 2 % slower.
template <class T>
__device__ __forceinline__ uint4 load_once16(const T* p) {
  if constexpr (sizeof(T) != 2) return load_aligned16(p);
  uint4 raw;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(raw.x), "=r"(raw.y), "=r"(raw.z), "=r"(raw.w)
               : "l"(p));
  return raw;
}

/// What a CTA reduces: split `split` of tile `tile` of kept group `outer`. Neighbouring CTAs read neighbouring tiles of the same
/// positions. Divisions in 32 bits: 64-bit ones take long compared with a CTA that reads 64 KB.
struct ColumnWork {
  unsigned tile, outer, split;
  /// The compiler computes it again at each use, so that no register keeps it in between.
  static __device__ __forceinline__ ColumnWork of_cta(const ColumnPlan& plan) {
    unsigned cta = blockIdx.x;
    asm volatile("" : "+r"(cta));
    const unsigned group = cta / static_cast<unsigned>(plan.tiles), outer = group / static_cast<unsigned>(plan.splits);
    return {cta - group * static_cast<unsigned>(plan.tiles), outer, group - outer * static_cast<unsigned>(plan.splits)};
  }
};

/// A thread's columns and positions: positions `begin`, begin + rows, ..., `count` of them. Constructed where it is used: values
/// that both layouts share would keep a register in between.
template <class Op>
struct ColumnThread {
  using T = typename Op::T;
  static constexpr int kWidth = Pack<T>::kCount;
  const ColumnPlan& plan;
  const Convert<T>& convert;
  const T* in;
  ColumnWork work;
  int first, rows, log2_rows;  ///< among the positions that a CTA reads at a time
  std::int64_t column;         ///< the first of its columns
  std::int64_t begin;
  int count;

  __device__ __forceinline__ ColumnThread(const ColumnPlan& plan, const Convert<T>& convert, const T* in)
      : plan(plan), convert(convert), in(in), work(ColumnWork::of_cta(plan)) {
    const int lane = static_cast<int>(threadIdx.x) & (plan.lanes - 1), log2_lanes = 31 - __clz(plan.lanes);
    first = static_cast<int>(threadIdx.x) >> log2_lanes;
    rows = kColumnThreads<Op> >> log2_lanes;
    log2_rows = 31 - __clz(rows);
    column = static_cast<std::int64_t>(work.tile) * plan.tile + lane * kWidth;
    begin = work.split * plan.split_positions + first;
    const std::int64_t end = min((work.split + std::int64_t{1}) * plan.split_positions, plan.positions);
    count = static_cast<int>((end - begin + rows - 1) >> log2_rows);
  }
  /// Position 0 of its first column.
  __device__ __forceinline__ const T* base() const { return in + plan.kept.offsets(work.outer).in + column * plan.column_stride; }
  /// The end of the tensor. The compiler computes it again at each use, as it does ColumnWork.
  __device__ __forceinline__ const T* end() const {
    std::int64_t size = plan.last + 1;
    asm volatile("" : "+l"(size));
    return in + size;
  }
  /// Adds kUnroll vectors, positions k, k + 1, ... of this thread.
  __device__ __forceinline__ void add(Part<Op> (&parts)[kWidth], const uint4 (&raw)[kUnroll], int k) const {
    if constexpr (kPartIsLess<Op>) {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) Op::push(parts, raw[j], first + (k + j) * rows, convert);
    } else {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        typename Op::V x[kUnroll];
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) x[j] = value_of<Op>(convert, raw[j], e);
        Op::push(parts[e], x, maximum_of(x), [&](int j) { return k + j; });
      }
    }
  }
};

/// Adds a thread's positions, read as aligned blocks. Returns the elements of its blocks that lie before its columns.
template <class Op, bool kFolds>
__device__ __forceinline__ int add_blocks(const ColumnThread<Op>& thread, Part<Op> (&parts)[ColumnThread<Op>::kWidth]) {
  using T = typename Op::T;
  constexpr int kWidth = Pack<T>::kCount, kSteps = kColumnSteps<Op>;
  constexpr bool kWhole = kSteps > 1;  // a loop for whole steps
  const ColumnPlan& plan = thread.plan;
  const int count = thread.count;
  const T* p = thread.base() + thread.begin * plan.reduced.stride[0];
  const int shift = static_cast<int>(misalignment(p) / sizeof(T));
  if (thread.column - shift >= min(plan.columns, (thread.work.tile + std::int64_t{1}) * plan.tile)) return shift;
  p -= shift;
  const std::int64_t step = plan.reduced.stride[0] << thread.log2_rows;
  // If tiles start at any address, the last position's block may reach past the tensor; the blocks of other positions end in the
  // next position's elements. It is also incomplete if fewer positions are left than lie side by side.
  const bool is_cut = kFolds && plan.cut < plan.columns && thread.begin + (count - 1) * thread.rows == plan.positions - 1;
  const int whole = is_cut || (plan.span < plan.lanes && p + (count - 1) * step + kWidth > thread.end()) ? count - 1 : count;
  int k = 0;
  for (; kWhole && k + kSteps * kUnroll <= whole; k += kSteps * kUnroll) {
    uint4 raw[kSteps][kUnroll];
#pragma unroll
    for (int i = 0; i < kSteps * kUnroll; ++i) {
      raw[i / kUnroll][i % kUnroll] = load_once16(p);
      p += step;
      // Otherwise the compiler computes multiples of `step` and, short of registers, places 4 of 8 loads after the first sums.
      asm("" : "+l"(p));
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) thread.add(parts, raw[i], k + i * kUnroll);
  }
#pragma unroll 1
  for (; k < count; k += kUnroll) {
    uint4 raw[kUnroll];
    if (k + kUnroll <= whole) {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j, p += step) raw[j] = load_once16(p);
    } else {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j, p += step) {
        raw[j] = padding<Op>(plan);
        if (k + j < whole) raw[j] = load_once16(p);
      }
      if (whole < count && whole < k + kUnroll) {
        const T* const block = p - (k + kUnroll - whole) * step;
        const int readable = static_cast<int>(max(min(thread.end() - block, std::int64_t{kWidth}), std::int64_t{0}));
        uint4 front = readable == kWidth ? load_aligned16(block)
                                         : load_front<T>(reinterpret_cast<const char*>(block),
                                                         static_cast<unsigned>(readable * static_cast<int>(sizeof(T))));
        if (is_cut) front = first_elements<T>(front, static_cast<int>(plan.cut - thread.column) + shift, padding<Op>(plan));
#pragma unroll
        for (int j = 0; j < kUnroll; ++j)
          if (k + j == whole) raw[j] = front;
      }
    }
    thread.add(parts, raw, k);
  }
  return shift;
}

/// Loads the vectors of a thread's `columns` columns at base + offset[0], [1], ..., `count` of them.
template <class Op>
__device__ __forceinline__ void load_columns(const ColumnThread<Op>& thread, const typename Op::T* base,
                                             const std::int64_t (&offset)[kUnroll], int columns, int count,
                                             uint4 (&raw)[kUnroll]) {
  using T = typename Op::T;
  constexpr int kWidth = Pack<T>::kCount;
  const ColumnPlan& plan = thread.plan;
  // Loads a vector as the two aligned blocks that hold it, unless the second reaches past the tensor.
  const bool vector = plan.vector && columns == kWidth;
  bool blocks = vector && kUnroll <= count;
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) blocks = blocks && base + offset[j] + 2 * kWidth <= thread.end();
  if (blocks) {
    uint4 behind[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const char* const from = reinterpret_cast<const char*>(base + offset[j]);
      raw[j] = load_aligned16(from - misalignment(from));
      behind[j] = load_aligned16(from - misalignment(from) + 16);
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) raw[j] = shift_bytes(raw[j], behind[j], misalignment(base + offset[j]));
    return;
  }
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) {
    raw[j] = padding<Op>(plan);
    if (j >= count) continue;
    const T* const from = base + offset[j];
    raw[j] = vector ? load_shifted16(from) : load_singles<T, kWidth>(from, columns, raw[j], plan.column_stride);
  }
}

/// Adds a thread's positions of any layout; position n is at thread.base() + plan.reduced.offset(n).
template <class Op>
__device__ __forceinline__ void add_any(const ColumnThread<Op>& thread, Part<Op> (&parts)[ColumnThread<Op>::kWidth]) {
  const ColumnPlan& plan = thread.plan;
  if (thread.column >= plan.columns) return;
  const typename Op::T* const base = thread.base();
  const int rows = thread.rows, columns = static_cast<int>(min(plan.columns - thread.column, std::int64_t{thread.kWidth}));
  std::int64_t n = thread.begin;
#pragma unroll 1
  for (int k = 0; k < thread.count; k += kUnroll, n += kUnroll * rows) {
    std::int64_t offset[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) offset[j] = (n + j * rows) * plan.reduced.stride[0];
    if (plan.reduced.dims != 1) find_offsets(offset, plan.reduced, n, rows);
    uint4 raw[kUnroll];
    load_columns(thread, base, offset, columns, thread.count - k, raw);
    thread.add(parts, raw, k);
  }
}

template <class Op>
__global__ void __launch_bounds__(kColumnThreads<Op>, kColumnBlocks<Op>)
    reduce_columns(const __grid_constant__ ColumnPlan plan, const typename Op::T* __restrict__ in, void* __restrict__ out,
                   unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount, kThreads = kColumnThreads<Op>;
  constexpr bool kFolds = std::is_same_v<typename Op::Extra, NoExtra>;
  __shared__ alignas(16) State shared[kThreads * kWidth];
  if (plan.early) {
    ptx::grid_release();
    in = ptx::grid_wait(in);
  }

  const Convert<T> convert(plan);
  ColumnStates<Op, Part<Op>> parts;
  parts.clear(static_cast<int>(threadIdx.x) >> (31 - __clz(plan.lanes)));
  int shift = 0;  // elements of a thread's blocks before its columns
  if (plan.blocks_loaded)
    shift = add_blocks<Op, kFolds>(ColumnThread<Op>(plan, convert, in), parts.s);
  else
    add_any(ColumnThread<Op>(plan, convert, in), parts.s);

  const ColumnWork work = ColumnWork::of_cta(plan);
  State* const of_tile = partials + (static_cast<std::int64_t>(work.outer) * plan.tiles + work.tile) * plan.splits * plan.results;
  const auto finish = [&](int c, const State& state) {
    const std::int64_t to_column = static_cast<std::int64_t>(work.tile) * plan.outputs_of_tile + c;
    if (c >= plan.outputs_of_tile || to_column >= plan.column_outputs) return;
    const IndexMap::Pair at = plan.kept.offsets(work.outer);
    const std::int64_t to = at.out + to_column * plan.column_out;
    typename Op::Extra extra{};
    extra.aim(plan, to);
    extra.template look<false>(plan, in + at.in + to_column * plan.column_stride);
    Op::finish(plan, convert, state, extra, out, to);
  };
  const auto store = [&](int c, const State& state) {
    if (plan.splits == 1)
      finish(c, state);
    else
      of_tile[static_cast<std::int64_t>(work.split) * plan.results + c] = state;
  };
  const auto state_of = [&](const Part<Op>& part, [[maybe_unused]] int position) {
    if constexpr (kPartIsLess<Op>)
      return Op::state(part, work.split * plan.split_positions, plan.repeat, position);
    else
      return part;
  };
  Part<Op>* const joined = reinterpret_cast<Part<Op>*>(shared);
  const bool folded = kFolds && plan.fold_lanes > 0;
  parts.join(plan.lanes, plan.tile, shift, joined, [&](int c, const Part<Op>& part) {
    if (folded)
      joined[c] = part;  // overwrites the first of the joined states
    else
      store(c, state_of(part, 0));
  });
  if constexpr (kFolds) {
    if (folded) {
      __syncthreads();
      fold_columns<Op>(plan, [&](int v, int position) { return state_of(joined[v], position); }, store);
    }
  }
  if (plan.splits == 1 || !is_last_block(counters + work.outer * plan.tiles + work.tile, plan.splits)) return;
  join_column_splits<Op>(plan, of_tile, shared, finish);
}

}  // namespace xgemm::reduce
