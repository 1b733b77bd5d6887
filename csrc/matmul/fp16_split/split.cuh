// fp32 operands for fp16 tensor cores: each row of A and each column of B ("line") is scaled by a power of two that brings its
// largest magnitude to [2^14, 2^15), and each element x becomes hi + lo with hi = fp16(x s), lo = fp16(x s - hi): 22 bits or more
// of every element within 2^17 of its line's maximum, and 2^-39 of the maximum below (Ootomo & Yokota, arXiv 2203.03341, with
// scaling: all products share one accumulator). With one part, x becomes hi alone: 11 bits, as tf32.
//
// Lossy: smaller than 2^-17 of the line's maximum and not exactly hi + lo (one part: 2^-28, hi). Dense: at least 2^-9 of it.
// C_ij of lines i and j is as good as an fp32 product (one part: off by less than 2^-16 of |A||B|) when
//   - neither line has a lossy element and the shares of elements that are not zero multiply to 1/32 or more, or
//   - at most 1/256 of each line is lossy and the shares of dense elements add up to at least 9/8.
// Lines with Inf or NaN never qualify; a line of zeros does except against those. Other C_ij: bf16x3/kernel.cuh (gated and
// batch-invariant products: simt/kernel.cuh). Why these bounds hold: docs/matmul.md.
//
// Layout is kept: K-major stays K-major, MN-major stays MN-major; output lines are padded to 8 elements, so TMA takes any size.
// Floor: per operand 4 + 4 bytes per element (read once, write hi and lo).
#pragma once
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/simt/launch.h"

namespace xgemm::matmul {

struct SplitArguments {
  Problem problem;  ///< batch dims
  Operand operand;  ///< A or B of it
  std::int64_t line_stride, k_stride;
  half* out;            ///< [batch][hi (, lo)][line or k][ld]
  std::int64_t ld;      ///< a multiple of 8
  LineStats* stats;     ///< [batch][line]
  FailedLines* failed;  ///< null: not counted
  bool of_b;
  int lines, k, batches;  ///< batches: 1 if all share the operand
  unsigned cluster;       ///< split_columns(): CTAs per strip
  bool vectors;           ///< the operand is contiguous along the fast dim, and its rows are 16-byte aligned
};

namespace split_detail {

inline constexpr int kThreads = 256;
inline constexpr int kHeld = 8;  // quads of a thread in registers

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

template <int kParts>
__device__ __forceinline__ void split(float x, const Scale& scale, half& hi, half& lo, Count& count) {
  const float scaled = x * scale.first * scale.second;
  hi = __float2half_rn(scaled);
  const float rest = scaled - __half2float(hi);  // exact
  const float magnitude = fabsf(scaled);
  count.filled += (magnitude >= 32.f ? 1u : 0u) + (x != 0.f ? 1u << 16 : 0u);
  if constexpr (kParts == 2) {
    lo = __float2half_rn(rest);
    count.lossy += magnitude < 0.125f && (__half2float(lo) != rest || (scaled == 0.f && x != 0.f));
  } else {
    count.lossy += magnitude < 0x1p-14f && (rest != 0.f || (scaled == 0.f && x != 0.f));
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

}  // namespace split_detail

/// K-major (or any strides): kWarps warps per line, which keep kHeld quads of a line per thread in registers; the rest of a
/// longer line is read twice, the second time from L1 or L2. Grid: lines * batches * kWarps / 8.
template <int kParts, int kWarps>
__global__ void __launch_bounds__(split_detail::kThreads, 3) split_rows(const __grid_constant__ SplitArguments s) {
  using namespace split_detail;
  constexpr int kCtaWarps = kThreads / 32, kGroup = 32 * kWarps;
  static_assert(kWarps == 1 || kWarps == kCtaWarps);
  __shared__ unsigned tops[kCtaWarps], counts[kCtaWarps][3];
  ptx::grid_wait();
  ptx::grid_release();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int index = static_cast<int>(blockIdx.x) * (kCtaWarps / kWarps) + warp / kWarps, batch = index / s.lines,
            line = index - batch * s.lines;
  if (batch >= s.batches) return;
  const float* const in =
      static_cast<const float*>(s.operand.data) + batch_offset(s.problem, s.operand, batch) + line * s.line_stride;
  const int first = 4 * (static_cast<int>(threadIdx.x) % kGroup);
  const auto load = [&](int k) { return load4(in, s.k_stride, k, s.k, s.vectors); };
  Vector<float, 4> held[kHeld];
#pragma unroll
  for (int h = 0; h < kHeld; ++h) {
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
#pragma unroll 4
  for (int k = first + 4 * kGroup * kHeld; k < s.k; k += 4 * kGroup) add_top(load(k));
  top = __reduce_max_sync(kFullWarp, top);
  if constexpr (kWarps > 1) {
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
    Vector<half, 4> hi, lo;
#pragma unroll
    for (int i = 0; i < 4; ++i) split<kParts>(x[i], scale, hi[i], lo[i], count);
    store_vector(hi_out + k, hi);
    if constexpr (kParts == 2) store_vector(hi_out + plane + k, lo);
  };
#pragma unroll
  for (int h = 0; h < kHeld; ++h)
    if (first + 4 * kGroup * h < s.k) convert(held[h], first + 4 * kGroup * h);
#pragma unroll 4
  for (int k = first + 4 * kGroup * kHeld; k < s.k; k += 4 * kGroup) convert(load(k), k);
  LineStats stats{top, __reduce_add_sync(kFullWarp, count.dense()), __reduce_add_sync(kFullWarp, count.lossy),
                  __reduce_add_sync(kFullWarp, count.nonzero())};
  if constexpr (kWarps > 1) {
    if (lane == 0) counts[warp][0] = stats.dense, counts[warp][1] = stats.lossy, counts[warp][2] = stats.nonzero;
    __syncthreads();
    stats.dense = stats.lossy = stats.nonzero = 0;
#pragma unroll
    for (const auto& of_warp : counts) stats.dense += of_warp[0], stats.lossy += of_warp[1], stats.nonzero += of_warp[2];
  }
  if (static_cast<int>(threadIdx.x) % kGroup == 0) note_line(s, index, stats);
}

namespace split_detail {

inline constexpr int kCluster = 8;                  // CTAs per strip at most, each with a part of k
inline constexpr unsigned kStripsAtOnce = 2 * 132;  // CTAs, two an SM of an H200
inline constexpr int kStrip = 32;                   // lines per strip: 128 bytes, eight lanes of four
inline constexpr int kStripThreads = 384;           // 48 rows at a time
inline constexpr int kStripHeld = 6;                // quads of a thread in registers
inline constexpr int kStripRows = kStripThreads / 8;

/// Reduces `values` of the thread's four lines over the CTA; thread i < kStrip gets line i's result. It ends without a barrier.
template <class Op>
__device__ __forceinline__ unsigned reduce_strip(const unsigned (&values)[4], unsigned (&scratch)[kStripThreads / 32][kStrip],
                                                 Op op) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    unsigned value = op(values[i], __shfl_xor_sync(0xffffffffu, values[i], 8));
    value = op(value, __shfl_xor_sync(0xffffffffu, value, 16));
    if (lane < 8) scratch[warp][4 * lane + i] = value;
  }
  __syncthreads();
  unsigned value = 0;
  if (threadIdx.x < kStrip) {
    value = scratch[0][threadIdx.x];
#pragma unroll
    for (int w = 1; w < kStripThreads / 32; ++w) value = op(value, scratch[w][threadIdx.x]);
  }
  return value;
}

}  // namespace split_detail

/// MN-major: one cluster per strip of lines, one CTA per part of k. The maxima are exchanged through distributed shared memory.
/// A thread keeps kStripHeld quads in registers; the rest of a longer part is read twice. Grid: strips * batches clusters.
template <int kParts>
__global__ void __launch_bounds__(split_detail::kStripThreads, 2) split_columns(const __grid_constant__ SplitArguments s) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace split_detail;
  __shared__ unsigned scratch[kStripThreads / 32][kStrip];
  __shared__ unsigned tops[kCluster][kStrip], counts[3][kCluster][kStrip];
  ptx::cluster_arrive_thread();
  ptx::grid_wait();
  ptx::grid_release();
  const int rank = static_cast<int>(ptx::cluster_rank()), strips = (s.lines + kStrip - 1) / kStrip;
  const int ctas = static_cast<int>(s.cluster), cluster = static_cast<int>(blockIdx.x) / ctas, batch = cluster / strips;
  const int first = (cluster - batch * strips) * kStrip, line = first + 4 * (static_cast<int>(threadIdx.x) % 8);
  const int span = (s.k + ctas - 1) / ctas;
  const int k_begin = rank * span + static_cast<int>(threadIdx.x) / 8, k_end = min(s.k, (rank + 1) * span);
  const float* const in = static_cast<const float*>(s.operand.data) + batch_offset(s.problem, s.operand, batch);
  const auto load = [&](int k) { return load4(in + k * s.k_stride, s.line_stride, line, s.lines, s.vectors); };
  Vector<float, 4> held[kStripHeld] = {};
  unsigned top[4] = {};
  const auto add_top = [&](const Vector<float, 4>& x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) top[i] = max(top[i], magnitude_bits(x[i]));
  };
  if (line < s.lines) {
#pragma unroll
    for (int h = 0; h < kStripHeld; ++h)
      if (k_begin + h * kStripRows < k_end) held[h] = load(k_begin + h * kStripRows);
#pragma unroll
    for (const auto& x : held) add_top(x);
#pragma unroll 4
    for (int k = k_begin + kStripHeld * kStripRows; k < k_end; k += kStripRows) add_top(load(k));
  }
  const unsigned mine = reduce_strip(top, scratch, [](unsigned a, unsigned b) { return max(a, b); });
  ptx::cluster_wait_thread();  // all CTAs of the cluster run: their shared memory may be written
  if (threadIdx.x < kStrip)
    for (int r = 0; r < ctas; ++r) ptx::store_remote(ptx::remote_address(&tops[rank][threadIdx.x], r), mine);
  ptx::cluster_sync();
  const auto line_top = [&](int i) {
    unsigned value = tops[0][i];
#pragma unroll 1
    for (int r = 1; r < ctas; ++r) value = max(value, tops[r][i]);
    return value;
  };

  const std::int64_t plane = s.k * s.ld;
  half* const hi_out = s.out + kParts * batch * plane;
  Count count[4];
  if (line < s.lines) {
    const Scale scales[4] = {Scale(line_top(line - first)), Scale(line_top(line - first + 1)), Scale(line_top(line - first + 2)),
                             Scale(line_top(line - first + 3))};
    const auto convert = [&](const Vector<float, 4>& x, int k) {
      Vector<half, 4> hi, lo;
#pragma unroll
      for (int i = 0; i < 4; ++i) split<kParts>(x[i], scales[i], hi[i], lo[i], count[i]);
      store_vector(hi_out + k * s.ld + line, hi);
      if constexpr (kParts == 2) store_vector(hi_out + plane + k * s.ld + line, lo);
    };
#pragma unroll
    for (int h = 0; h < kStripHeld; ++h)
      if (k_begin + h * kStripRows < k_end) convert(held[h], k_begin + h * kStripRows);
#pragma unroll 4
    for (int k = k_begin + kStripHeld * kStripRows; k < k_end; k += kStripRows) convert(load(k), k);
  }
  const auto add = [](unsigned a, unsigned b) { return a + b; };
  const unsigned dense = reduce_strip({count[0].dense(), count[1].dense(), count[2].dense(), count[3].dense()}, scratch, add);
  const unsigned lossy = reduce_strip({count[0].lossy, count[1].lossy, count[2].lossy, count[3].lossy}, scratch, add);
  const unsigned nonzero =
      reduce_strip({count[0].nonzero(), count[1].nonzero(), count[2].nonzero(), count[3].nonzero()}, scratch, add);
  if (threadIdx.x < kStrip) {
    ptx::store_remote(ptx::remote_address(&counts[0][rank][threadIdx.x], 0), dense);
    ptx::store_remote(ptx::remote_address(&counts[1][rank][threadIdx.x], 0), lossy);
    ptx::store_remote(ptx::remote_address(&counts[2][rank][threadIdx.x], 0), nonzero);
  }
  ptx::cluster_sync();
  if (rank == 0 && threadIdx.x < kStrip && first + static_cast<int>(threadIdx.x) < s.lines) {
    LineStats stats{line_top(static_cast<int>(threadIdx.x)), 0, 0, 0};
#pragma unroll 1
    for (int r = 0; r < ctas; ++r) {
      stats.dense += counts[0][r][threadIdx.x];
      stats.lossy += counts[1][r][threadIdx.x];
      stats.nonzero += counts[2][r][threadIdx.x];
    }
    note_line(s, static_cast<std::int64_t>(batch) * s.lines + first + static_cast<int>(threadIdx.x), stats);
  }
#endif
}

}  // namespace xgemm::matmul
