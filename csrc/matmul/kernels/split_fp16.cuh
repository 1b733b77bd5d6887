// fp32 operands for fp16 tensor cores: each row of A and each column of B ("line") is scaled by a power of two that brings its largest
// magnitude to [2^14, 2^15) and each element x becomes hi + lo with hi = fp16(x s), lo = fp16(x s - hi): 22 bits or more of every
// element within 2^17 of its line's maximum, and 2^-39 of the maximum below. Method: Ootomo & Yokota, arXiv 2203.03341, with scaling,
// so that lo shares hi's scale and all three products one accumulator. With one part, x becomes hi alone: 11 bits, as tf32.
//
// What the split cannot carry. An element is "lossy" when it is smaller than 2^-17 of its line's maximum and hi + lo is not exactly it,
// "dense" when it is at least 2^-9 of the maximum. A product C_ij of lines i and j is as good as an fp32 one when
//   - neither line has a lossy element (then every element is carried to 2^-22), or
//   - at most 1/256 of each line is lossy and the fractions of dense elements add up to at least 9/8: then at least K/8 products are
//     both dense, |A||B| >= K/8 2^10, while what is lost is at most 2 K/256 2^-25 2^15: below 2^-24 of it.
// With one part an element is lossy below 2^-28 of the maximum (fp16's subnormals) unless hi is exactly it: the same arithmetic bounds
// what is lost by 2^-16 of |A||B|. Inf and NaN never qualify; a line of zeros always does (except against Inf or NaN).
// full_range_gemm does the elements that fail.
//
// Layout is kept: K-major stays K-major, MN-major stays MN-major; output lines are padded to 8 elements, so TMA takes any size.
// Floor: per operand 4 + 4 bytes an element (read once, write hi and lo); MN-major reads twice: 8 + 4.
#pragma once
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/kernels/epilogue.cuh"
#include "matmul/kernels/line_scale.cuh"

namespace xgemm::matmul {

struct SplitArguments {
  Problem problem;           ///< batch dims
  Operand operand;           ///< A or B of it
  std::int64_t line_stride, k_stride;
  half* out;                 ///< [batch][hi (, lo)][line or k][ld]
  std::int64_t ld;           ///< a multiple of 8
  LineStats* stats;          ///< [batch][line]; zeroed before split_columns_max
  int lines, k, batches;     ///< batches: 1 where all share the operand
  bool vectors;              ///< in is 16-byte aligned and contiguous along the fast dim, its rows too
};

namespace split_detail {

inline constexpr int kThreads = 256;

struct Scale {
  float first, second;  // 2^e in two factors, as e can exceed 127 (denormal lines)
  __device__ __forceinline__ explicit Scale(unsigned max_bits) {
    const int e = split_exponent(max_bits), half_e = e > 120 ? 100 : 0;
    first = power_of_two(e - half_e);
    second = power_of_two(half_e);
  }
};

struct Count {
  unsigned dense = 0, lossy = 0;
};

template <int kParts>
__device__ __forceinline__ void split(float x, const Scale& scale, half& hi, half& lo, Count& count) {
  const float scaled = x * scale.first * scale.second;
  hi = __float2half_rn(scaled);
  const float rest = scaled - __half2float(hi);  // exact
  const float magnitude = fabsf(scaled);
  count.dense += magnitude >= 32.f;
  if constexpr (kParts == 2) {
    lo = __float2half_rn(rest);
    count.lossy += magnitude < 0.125f && (__half2float(lo) != rest || (scaled == 0.f && x != 0.f));
  } else {
    count.lossy += magnitude < 0x1p-14f && (rest != 0.f || (scaled == 0.f && x != 0.f));
  }
}

__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/// Four neighbours along the fast dim, zeros beyond its end.
__device__ __forceinline__ Vector<float, 4> load4(const float* p, std::int64_t stride, int at, int end, bool vectors) {
  if (vectors && at + 4 <= end) return load_vector<4>(p + at);
  Vector<float, 4> v;
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = at + i < end ? p[(at + i) * stride] : 0.f;
  return v;
}

template <class Op>
__device__ __forceinline__ unsigned block_reduce(unsigned value, unsigned* scratch, Op op) {
  value = warp_reduce(value, op);
  __syncthreads();  // scratch may still be read from the call before
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
#pragma unroll
  for (int w = 1; w < kThreads / 32; ++w) value = op(value, scratch[w]);
  return value;
}

}  // namespace split_detail

/// K-major (or any strides): a CTA a line; the second read comes from L1 or L2. Grid: lines * batches.
template <int kParts>
__global__ void __launch_bounds__(split_detail::kThreads) split_rows(const __grid_constant__ SplitArguments s) {
  using namespace split_detail;
  __shared__ unsigned scratch[kThreads / 32];
  const int batch = static_cast<int>(blockIdx.x) / s.lines, line = static_cast<int>(blockIdx.x) - batch * s.lines;
  const float* const in = static_cast<const float*>(s.operand.data) + batch_offset(s.problem, s.operand, batch) + line * s.line_stride;
  unsigned top = 0;
#pragma unroll 4
  for (int k = 4 * static_cast<int>(threadIdx.x); k < s.k; k += 4 * kThreads) {
    const auto x = load4(in, s.k_stride, k, s.k, s.vectors);
#pragma unroll
    for (int i = 0; i < 4; ++i) top = max(top, magnitude_bits(x[i]));
  }
  top = block_reduce(top, scratch, [](unsigned a, unsigned b) { return max(a, b); });

  const Scale scale(top);
  const std::int64_t plane = s.lines * s.ld;
  half* const hi_out = s.out + kParts * batch * plane + line * s.ld;
  Count count;
#pragma unroll 4
  for (int k = 4 * static_cast<int>(threadIdx.x); k < s.k; k += 4 * kThreads) {
    const auto x = load4(in, s.k_stride, k, s.k, s.vectors);
    Vector<half, 4> hi, lo;
#pragma unroll
    for (int i = 0; i < 4; ++i) split<kParts>(x[i], scale, hi[i], lo[i], count);
    store_vector(hi_out + k, hi);
    if constexpr (kParts == 2) store_vector(hi_out + plane + k, lo);
  }
  const auto add = [](unsigned a, unsigned b) { return a + b; };
  const unsigned dense = block_reduce(count.dense, scratch, add), lossy = block_reduce(count.lossy, scratch, add);
  if (threadIdx.x == 0) s.stats[blockIdx.x] = {top, dense, lossy};
}

namespace split_detail {

inline constexpr int kStrip = 128;    // lines of a CTA: 32 lanes of four
inline constexpr int kDepth = 128;    // k of a CTA
inline constexpr int kRows = kThreads / 32;

/// Adds up (or takes the maximum of) one value a thread and line over the CTA's warps, then atomically into `field` of the stats.
template <class Op, class Atomic>
__device__ __forceinline__ void reduce_lines(const unsigned (&values)[4], unsigned (&scratch)[kRows][kStrip], Op op, Atomic atomic) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) scratch[warp][4 * lane + i] = values[i];
  __syncthreads();
  if (threadIdx.x < kStrip) {
    unsigned value = scratch[0][threadIdx.x];
#pragma unroll
    for (int w = 1; w < kRows; ++w) value = op(value, scratch[w][threadIdx.x]);
    atomic(static_cast<int>(threadIdx.x), value);
  }
}

/// This CTA's part of the operand. Grid: (strips * batch, chunks of k).
struct Strip {
  int batch, line, k_begin, k_end, first;  // `line` is this thread's first of four, `first` the CTA's
  const float* in;
  __device__ __forceinline__ explicit Strip(const SplitArguments& s) {
    const int strips = (s.lines + kStrip - 1) / kStrip;
    batch = static_cast<int>(blockIdx.x) / strips;
    first = (static_cast<int>(blockIdx.x) - batch * strips) * kStrip;
    line = first + 4 * (static_cast<int>(threadIdx.x) % 32);
    k_begin = static_cast<int>(blockIdx.y) * kDepth + static_cast<int>(threadIdx.x) / 32;
    k_end = min(s.k, (static_cast<int>(blockIdx.y) + 1) * kDepth);
    in = static_cast<const float*>(s.operand.data) + batch_offset(s.problem, s.operand, batch);
  }
};

}  // namespace split_detail

/// MN-major, first pass: the largest magnitude of each line. Integer atomics: the result does not depend on their order.
__global__ void __launch_bounds__(split_detail::kThreads) split_columns_max(const __grid_constant__ SplitArguments s) {
  using namespace split_detail;
  __shared__ unsigned scratch[kRows][kStrip];
  const Strip strip(s);
  unsigned top[4] = {};
  if (strip.line < s.lines)
#pragma unroll 8
    for (int k = strip.k_begin; k < strip.k_end; k += kRows) {
      const auto x = load4(strip.in + k * s.k_stride, s.line_stride, strip.line, s.lines, s.vectors);
#pragma unroll
      for (int i = 0; i < 4; ++i) top[i] = max(top[i], magnitude_bits(x[i]));
    }
  LineStats* const stats = s.stats + static_cast<std::int64_t>(strip.batch) * s.lines;
  reduce_lines(
      top, scratch, [](unsigned a, unsigned b) { return max(a, b); },
      [&](int i, unsigned value) {
        if (strip.first + i < s.lines) atomicMax(&stats[strip.first + i].max_bits, value);
      });
}

/// MN-major, second pass: splits, and counts.
template <int kParts>
__global__ void __launch_bounds__(split_detail::kThreads) split_columns(const __grid_constant__ SplitArguments s) {
  using namespace split_detail;
  __shared__ unsigned scratch[kRows][kStrip];
  const Strip strip(s);
  LineStats* const stats = s.stats + static_cast<std::int64_t>(strip.batch) * s.lines;
  const std::int64_t plane = s.k * s.ld;
  half* const hi_out = s.out + kParts * strip.batch * plane;
  Count count[4];
  if (strip.line < s.lines) {
    Scale scales[4] = {Scale(stats[strip.line].max_bits), Scale(stats[min(strip.line + 1, s.lines - 1)].max_bits),
                       Scale(stats[min(strip.line + 2, s.lines - 1)].max_bits),
                       Scale(stats[min(strip.line + 3, s.lines - 1)].max_bits)};
#pragma unroll 4
    for (int k = strip.k_begin; k < strip.k_end; k += kRows) {
      const auto x = load4(strip.in + k * s.k_stride, s.line_stride, strip.line, s.lines, s.vectors);
      Vector<half, 4> hi, lo;
#pragma unroll
      for (int i = 0; i < 4; ++i) split<kParts>(x[i], scales[i], hi[i], lo[i], count[i]);
      store_vector(hi_out + k * s.ld + strip.line, hi);
      if constexpr (kParts == 2) store_vector(hi_out + plane + k * s.ld + strip.line, lo);
    }
  }
  const auto add = [](unsigned a, unsigned b) { return a + b; };
  const unsigned dense[4] = {count[0].dense, count[1].dense, count[2].dense, count[3].dense};
  const unsigned lossy[4] = {count[0].lossy, count[1].lossy, count[2].lossy, count[3].lossy};
  reduce_lines(dense, scratch, add, [&](int i, unsigned value) {
    if (strip.first + i < s.lines && value) atomicAdd(&stats[strip.first + i].dense, value);
  });
  reduce_lines(lossy, scratch, add, [&](int i, unsigned value) {
    if (strip.first + i < s.lines && value) atomicAdd(&stats[strip.first + i].lossy, value);
  });
}

}  // namespace xgemm::matmul
