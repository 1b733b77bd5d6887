// fp32 operands for fp16 tensor cores: each row of A and each column of B ("line") is scaled by a power of two that brings its
// largest magnitude to [2^14, 2^15), and each element x becomes hi + 2^-11 lo with hi = fp16(x s), lo = fp16(2^11 (x s - hi)): 22
// bits or more of every element within 2^28 of its line's maximum, and 2^-50 of the maximum below (Ootomo & Yokota, arXiv
// 2203.03341, with scaling). With one part, x becomes hi alone: 11 bits, as tf32.
//
// Lossy: smaller than 2^-28 of the line's maximum and not exactly its parts. Dense: at least 2^-14 of it (one part: 2^-9).
// C_ij of lines i and j is as good as an fp32 product (one part: off by less than 2^-16 of |A||B|) when
//   - neither line has a lossy element and the shares of elements that are not zero multiply to 1/32 or more, of a K
//     below 512 to 16/K, or
//   - at most 1/256 of each line is lossy and the shares of dense elements add up to at least 9/8.
// Lines with Inf or NaN never qualify; a line of zeros does except against those. Other C_ij: bf16x3/kernel.cu (gated and
// batch-invariant products: simt/kernel.cuh). Why these bounds hold: docs/matmul.md.
//
// Layout is kept: K-major stays K-major, MN-major stays MN-major; output lines are padded to 8 elements, so TMA takes any size.
// Floor: 4 + 4 bytes per element (read, write hi and lo); 4 more where k is not the contiguous dim, since columns are read twice.
#pragma once
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {

/// K-major lines (or any strides) by kShortRowThreads each, a warp or a CTA; MN-major ones, first their largest
/// magnitudes, then the parts.
enum class SplitWay : std::uint8_t { short_rows, rows_of_warps, rows_of_ctas, columns };

struct SplitArguments {
  Problem problem;  ///< batch dims
  Operand operand;  ///< A or B of it
  std::int64_t line_stride, k_stride;
  half* out;            ///< [batch][hi (, lo)][line or k][ld]
  std::int64_t ld;      ///< a multiple of 8
  LineStats* stats;     ///< [batch][line]
  unsigned* tops;       ///< columns: [batch][chunk][line], then [line] of counters
  FailedLines* failed;  ///< null: not counted
  bool of_b;
  int lines, k, batches;  ///< batches: 1 if all share the operand
  int chunks;             ///< columns: of k
  SplitWay way;
  unsigned blocks;  ///< CTAs
  bool vectors;     ///< the operand is contiguous along the fast dim, and its rows are 16-byte aligned
  /// CTAs in one of the pass's two launches: columns have them in both, short rows in the second.
  __host__ __device__ unsigned blocks_in(bool second) const {
    return way == SplitWay::columns || (way == SplitWay::short_rows) == second ? blocks : 0;
  }
};

namespace split_detail {

inline constexpr int kThreads = 256;
inline constexpr int kShortRowThreads = 8;  // with a warp each, a CTA's start would take longer than its rows
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr int kCtasOfTwoParts = 4;  // an SM
#else
inline constexpr int kCtasOfTwoParts = 3;  // ptxas would spill
#endif
inline constexpr int kAtOnce = 4;  // loads of a thread in flight
inline constexpr float kLowScale = 1 / kLowUnit;
inline constexpr int kHeld = 8;  // quads of a thread in registers, if rows may be long

struct Scale {
  float first, second;  // 2^e in two factors, as e can exceed 127 (denormal lines)
  __device__ __forceinline__ explicit Scale(unsigned max_bits) {
    const int e = split_exponent(max_bits), half_e = e > 120 ? 100 : 0;
    first = power_of_two(e - half_e);
    second = power_of_two(half_e);
  }
};

struct Count {
  unsigned filled = 0, lossy = 0;  // filled: dense, and from bit 16 on elements that are not zero (a thread has under 2^15)
  __device__ __forceinline__ unsigned dense() const { return filled & 0xffffu; }
  __device__ __forceinline__ unsigned nonzero() const { return filled >> 16; }
};

__device__ __forceinline__ unsigned bits_of(half2 x) { return *reinterpret_cast<unsigned*>(&x); }

/// Four elements in parts; scale(i) and *count(i) are those of element i's line.
template <int kParts, class ScaleAt, class CountAt>
__device__ __forceinline__ void split(const Vector<float, 4>& x, const ScaleAt& scale, const CountAt& count,
                                      Vector<unsigned, 2>& hi, Vector<unsigned, 2>& lo) {
  constexpr float kDense = kParts == 2 ? 1.f : 32.f, kExact = 0x1p-14f;
  float scaled[4], rest[4], lost[4], least = 1.f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const Scale s = scale(i);
    scaled[i] = x[i] * s.first * s.second;
    least = fminf(least, fabsf(scaled[i]));
    Count* const c = count(i);
    if (fabsf(scaled[i]) >= kDense) c->filled += 1;
    if (x[i] != 0.f) c->filled += 1u << 16;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const half2 high = __floats2half2_rn(scaled[2 * i], scaled[2 * i + 1]);
    hi[i] = bits_of(high);
    const float2 of_hi = __half22float2(high);
    rest[2 * i] = scaled[2 * i] - of_hi.x, rest[2 * i + 1] = scaled[2 * i + 1] - of_hi.y;  // exact
    if constexpr (kParts == 2) {
      rest[2 * i] *= kLowScale, rest[2 * i + 1] *= kLowScale;
      const half2 low = __floats2half2_rn(rest[2 * i], rest[2 * i + 1]);
      lo[i] = bits_of(low);
      lost[2 * i] = rest[2 * i] - __low2float(low), lost[2 * i + 1] = rest[2 * i + 1] - __high2float(low);
    } else {
      lost[2 * i] = rest[2 * i], lost[2 * i + 1] = rest[2 * i + 1];
    }
  }
  if (least >= kExact) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float of_x = scaled[i] == 0.f ? x[i] : lost[i];
    if (fabsf(scaled[i]) < kExact && of_x != 0.f) count(i)->lossy += 1;
  }
}

/// Records a line's statistics. Called by one thread. Ordinary lines cost no atomic.
__device__ __forceinline__ void note_line(const SplitArguments& s, std::int64_t at, const LineStats& stats) {
  s.stats[at] = stats;
  if (!s.failed || stats.max_bits == 0) return;
  const std::int64_t k = s.k;
  const bool low = stats.max_bits < 63u << 23;  // in a line that does not fail, all numbers that matter are near the largest
  const bool ordinary = !low && stats.max_bits < kInfinityBits && 256ll * stats.lossy <= k;
  const std::int64_t dense = ordinary ? 16ll * stats.dense : 0;
  if (dense >= 12 * k) return;
  const unsigned levels = 4u | (dense < 9 * k ? 2u : 0u) | (dense < 6 * k ? 1u : 0u);
  atomicOr(&s.failed->state, levels << (s.of_b ? FailedLines::kLevelsOfB : FailedLines::kLevelsOfA));
  const bool failed = pairs_with_none(line_quality(stats, k));
  if (failed) atomicAdd(s.of_b ? &s.failed->of_b : &s.failed->of_a, 1u);
  if (low || (failed && lift_exponent(stats.max_bits) > 0)) atomicAdd(&s.failed->low, 1u);
}

__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/// Loads four neighbours along the fast dim, zeros beyond its end.
__device__ __forceinline__ Vector<float, 4> load4(const float* p, std::int64_t stride, int at, int end, bool vectors) {
  if (vectors && at + 4 <= end) return load_vector<4>(p + at);
  Vector<float, 4> v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = at + i < end ? p[(at + i) * stride] : 0.f;
  return v;
}

/// use(load(k), k) for k from `begin` to `end` - 1 in steps. Loads go ahead of use's stores, which for all the compiler knows
/// are to the same memory.
template <class Load, class Use>
__device__ __forceinline__ void each(int begin, int end, int step, const Load& load, const Use& use) {
  for (; begin < end; begin += kAtOnce * step) {
    Vector<float, 4> x[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (begin + i * step < end) x[i] = load(begin + i * step);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (begin + i * step < end) use(x[i], begin + i * step);
  }
}

/// kGroup threads per line, which keep kQuads quads of a line each in registers; the rest of a longer line is read twice, the
/// second time from L1 or L2. CTAs: lines * batches * kGroup / kThreads.
template <int kParts, int kGroup>
__device__ __forceinline__ void split_rows(const SplitArguments& s, unsigned cta) {
  constexpr int kCtaWarps = kThreads / 32;
  constexpr bool kWholeCta = kGroup == kThreads;
  static_assert(kGroup <= 32 || kWholeCta);
  constexpr int kQuads = kGroup < 32 ? kShortRow / (4 * kGroup) : kHeld;  // of a thread in registers
  __shared__ unsigned tops[kCtaWarps], counts[kCtaWarps][3];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned together = kFullWarp >> (32 - (kGroup < 32 ? kGroup : 32)) << (lane & -kGroup);  // lanes of the line
  const int index = static_cast<int>(cta) * (kThreads / kGroup) + static_cast<int>(threadIdx.x) / kGroup, batch = index / s.lines,
            line = index - batch * s.lines;
  if (batch >= s.batches) return;
  const float* const in =
      static_cast<const float*>(s.operand.data) + batch_offset(s.problem, s.operand, batch) + line * s.line_stride;
  const int first = 4 * (static_cast<int>(threadIdx.x) % kGroup);
  const auto load = [&](int k) { return load4(in, s.k_stride, k, s.k, s.vectors); };
  Vector<float, 4> held[kQuads];
#pragma unroll
  for (int h = 0; h < kQuads; ++h) {
    const int k = first + 4 * kGroup * h;
    held[h] = k < s.k ? load(k) : Vector<float, 4>{};
  }
  unsigned top = 0;
  const auto add_top = [&](const Vector<float, 4>& x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) top = max(top, magnitude_bits(x[i]));
  };
#pragma unroll
  for (const auto& x : held) add_top(x);
  if constexpr (kGroup >= 32) {
#pragma unroll 4
    for (int k = first + 4 * kGroup * kQuads; k < s.k; k += 4 * kGroup) add_top(load(k));
  }
  top = __reduce_max_sync(together, top);
  if constexpr (kWholeCta) {
    if (lane == 0) tops[warp] = top;
    __syncthreads();
#pragma unroll
    for (const unsigned other : tops) top = max(top, other);
  }

  const Scale scale(top);
  const std::int64_t plane = s.lines * s.ld;
  half* const hi_out = s.out + kParts * batch * plane + line * s.ld;
  Count count;
  const auto convert = [&](const Vector<float, 4>& x, int k) {
    Vector<unsigned, 2> hi, lo;
    split<kParts>(x, [&](int) { return scale; }, [&](int) { return &count; }, hi, lo);
    store_vector(reinterpret_cast<unsigned*>(hi_out + k), hi);
    if constexpr (kParts == 2) store_vector(reinterpret_cast<unsigned*>(hi_out + plane + k), lo);
  };
#pragma unroll
  for (int h = 0; h < kQuads; ++h)
    if (first + 4 * kGroup * h < s.k) convert(held[h], first + 4 * kGroup * h);
  if constexpr (kGroup >= 32) each(first + 4 * kGroup * kQuads, s.k, 4 * kGroup, load, convert);
  LineStats stats{top, __reduce_add_sync(together, count.dense()), __reduce_add_sync(together, count.lossy),
                  __reduce_add_sync(together, count.nonzero())};
  if constexpr (kWholeCta) {
    if (lane == 0) counts[warp][0] = stats.dense, counts[warp][1] = stats.lossy, counts[warp][2] = stats.nonzero;
    __syncthreads();
    stats.dense = stats.lossy = stats.nonzero = 0;
#pragma unroll
    for (const auto& of_warp : counts) stats.dense += of_warp[0], stats.lossy += of_warp[1], stats.nonzero += of_warp[2];
  }
  if (static_cast<int>(threadIdx.x) % kGroup == 0) note_line(s, index, stats);
}

static_assert(kStripLines == 4 * 32);              // a warp reads 512 bytes of a row
inline constexpr int kStripWarps = kThreads / 32;  // rows at a time

/// Reduces `values` of the thread's four lines over the CTA; thread i < kStripLines gets line i's result. It begins with a
/// barrier.
template <class Op>
__device__ __forceinline__ unsigned reduce_strip(const unsigned (&values)[4], unsigned (&scratch)[kStripWarps][kStripLines],
                                                 Op op) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) scratch[warp][4 * lane + i] = values[i];
  __syncthreads();
  unsigned value = 0;
  if (threadIdx.x < kStripLines) {
    value = scratch[0][threadIdx.x];
#pragma unroll
    for (int w = 1; w < kStripWarps; ++w) value = op(value, scratch[w][threadIdx.x]);
  }
  return value;
}

/// A CTA's lines and rows, and its thread's four lines.
struct Strip {
  const SplitArguments& s;
  unsigned cta;
  int strips = (s.lines + kStripLines - 1) / kStripLines, index = static_cast<int>(cta) / strips;  // neighbours read whole rows
  int batch = index / s.chunks, chunk = index - batch * s.chunks;
  int first = (static_cast<int>(cta) - index * strips) * kStripLines, line = first + 4 * (static_cast<int>(threadIdx.x) % 32);
  int rows = (s.k + s.chunks - 1) / s.chunks;
  int k_begin = chunk * rows + static_cast<int>(threadIdx.x) / 32, k_end = min(s.k, (chunk + 1) * rows);
  const float* in = static_cast<const float*>(s.operand.data) + batch_offset(s.problem, s.operand, batch);
  /// Calls use(elements, k) for the thread's quads.
  template <class Use>
  __device__ __forceinline__ void each(const Use& use) const {
    if (s.vectors && line + 4 <= s.lines)  // not asked of each quad, so that loads are in flight together
      split_detail::each(k_begin, k_end, kStripWarps, [&](int k) { return load_vector<4>(in + k * s.k_stride + line); }, use);
    else if (line < s.lines)
#pragma unroll 1
      for (int k = k_begin; k < k_end; k += kStripWarps) use(load4(in + k * s.k_stride, s.line_stride, line, s.lines, false), k);
  }
  __device__ __forceinline__ unsigned* tops(int of_chunk) const {
    return s.tops + (std::int64_t{batch} * (s.chunks + 1) + of_chunk) * s.lines + first;
  }
};

/// The largest magnitudes of each line in each chunk of k. CTAs: strips * batches * chunks.
__device__ __forceinline__ void find_tops(const SplitArguments& s, unsigned cta) {
  __shared__ unsigned scratch[kStripWarps][kStripLines];
  const Strip strip{s, cta};
  unsigned top[4] = {};
  strip.each([&](const Vector<float, 4>& x, int) {
#pragma unroll
    for (int i = 0; i < 4; ++i) top[i] = max(top[i], magnitude_bits(x[i]));
  });
  const unsigned largest = reduce_strip(top, scratch, [](unsigned a, unsigned b) { return max(a, b); });
  const int line = strip.first + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= kStripLines || line >= s.lines) return;
  strip.tops(strip.chunk)[threadIdx.x] = largest;
  if (strip.chunk > 0) return;
  strip.tops(s.chunks)[threadIdx.x] = 0;
  s.stats[std::int64_t{strip.batch} * s.lines + line] = {};
}

/// After find_tops(): the parts, and the lines' statistics, which the strip's last CTA completes.
template <int kParts>
__device__ __forceinline__ void split_columns(const SplitArguments& s, unsigned cta) {
  __shared__ unsigned scratch[kStripWarps][kStripLines], tops[kStripLines];
  __shared__ bool last;
  const Strip strip{s, cta};
  const bool has_line = threadIdx.x < kStripLines && strip.first + static_cast<int>(threadIdx.x) < s.lines;
  if (has_line) {
    unsigned top = 0;
#pragma unroll 4
    for (int chunk = 0; chunk < s.chunks; ++chunk) top = max(top, strip.tops(chunk)[threadIdx.x]);
    tops[threadIdx.x] = top;
  }
  __syncthreads();
  const std::int64_t plane = s.k * s.ld;
  half* const hi_out = s.out + kParts * strip.batch * plane + strip.line;
  Count count[4];
  if (strip.line < s.lines) {
    const auto scale = [&](int i) { return Scale(tops[min(strip.line - strip.first + i, s.lines - strip.first - 1)]); };
    const Scale scales[4] = {scale(0), scale(1), scale(2), scale(3)};
    strip.each([&](const Vector<float, 4>& x, int k) {
      Vector<unsigned, 2> hi, lo;
      split<kParts>(x, [&](int i) { return scales[i]; }, [&](int i) { return &count[i]; }, hi, lo);
      store_vector(reinterpret_cast<unsigned*>(hi_out + k * s.ld), hi);
      if constexpr (kParts == 2) store_vector(reinterpret_cast<unsigned*>(hi_out + plane + k * s.ld), lo);
    });
  }
  const auto add = [](unsigned a, unsigned b) { return a + b; };
  LineStats found{};
  found.dense = reduce_strip({count[0].dense(), count[1].dense(), count[2].dense(), count[3].dense()}, scratch, add);
  found.lossy = reduce_strip({count[0].lossy, count[1].lossy, count[2].lossy, count[3].lossy}, scratch, add);
  found.nonzero = reduce_strip({count[0].nonzero(), count[1].nonzero(), count[2].nonzero(), count[3].nonzero()}, scratch, add);
  const std::int64_t at = std::int64_t{strip.batch} * s.lines + strip.first + static_cast<int>(threadIdx.x);
  if (has_line) {
    LineStats& sum = s.stats[at];
    atomicAdd(&sum.dense, found.dense), atomicAdd(&sum.lossy, found.lossy), atomicAdd(&sum.nonzero, found.nonzero);
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(strip.tops(s.chunks), 1u) == static_cast<unsigned>(s.chunks) - 1;
  __syncthreads();
  if (!last || !has_line) return;
  __threadfence();
  const LineStats& sum = s.stats[at];
  note_line(s, at, {tops[threadIdx.x], __ldcg(&sum.dense), __ldcg(&sum.lossy), __ldcg(&sum.nonzero)});
}

/// The operands of a product whose parts a launch computes side by side.
struct SplitPass {
  static constexpr int kOperands = 3;  ///< A, B and up
  SplitArguments operands[kOperands];

  /// The operand of this CTA; `cta` becomes its number among the operand's.
  __device__ __forceinline__ const SplitArguments& mine(unsigned& cta, bool second) const {
    int i = 0;
#pragma unroll
    for (int o = 0; o + 1 < kOperands; ++o) {
      const unsigned here = operands[o].blocks_in(second);
      if (i < o || cta < here) continue;
      cta -= here, i = o + 1;
    }
    return operands[i];
  }
};

}  // namespace split_detail

/// The first launch: rows whole, of columns the largest magnitudes.
template <int kParts>
__global__ void __launch_bounds__(split_detail::kThreads, kParts == 2 ? split_detail::kCtasOfTwoParts : 3)
    split_operands(const __grid_constant__ split_detail::SplitPass pass) {
  using namespace split_detail;
  ptx::grid_wait();
  ptx::grid_release();
  unsigned cta = blockIdx.x;
  const SplitArguments& s = pass.mine(cta, false);
  if (s.way == SplitWay::columns)
    find_tops(s, cta);
  else if (s.way == SplitWay::rows_of_warps)
    split_rows<kParts, 32>(s, cta);
  else
    split_rows<kParts, kThreads>(s, cta);
}

/// The second launch, often the only one: short rows; and columns, those first that the first launch has read last, which L2
/// still has. (Short rows in the first launch would spill.)
template <int kParts>
__global__ void __launch_bounds__(split_detail::kThreads, 3)
    split_operands_second(const __grid_constant__ split_detail::SplitPass pass) {
  using namespace split_detail;
  ptx::grid_wait();
  ptx::grid_release();
  unsigned cta = gridDim.x - 1 - blockIdx.x;
  const SplitArguments& s = pass.mine(cta, true);
  if (s.way == SplitWay::columns)
    split_columns<kParts>(s, cta);
  else
    split_rows<kParts, kShortRowThreads>(s, cta);
}

}  // namespace xgemm::matmul
