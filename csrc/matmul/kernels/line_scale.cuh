// Scales of the lines (rows of A, columns of B) of a split fp32 operand, and how well the split carries them: see split_fp16.cuh.
#pragma once
#include <cstdint>

#include "device/numeric.cuh"

namespace xgemm {

inline constexpr unsigned kInfinityBits = 0x7f800000u;

/// What is known of a line after the split.
struct LineStats {
  unsigned max_bits;  ///< bits of the largest magnitude; from 0x7f800000 on: Inf or NaN
  unsigned dense, lossy;
};

struct SplitArguments {
  const float* in;
  std::int64_t line_stride, k_stride, batch_stride;  ///< in elements
  half* out;           ///< [batch][hi, lo][k or line][ld]
  std::int64_t ld;     ///< a multiple of 8
  LineStats* stats;    ///< [batch][line]; zeroed before split_columns_max
  int lines, k, batch;
  bool vectors;        ///< in is 16-byte aligned and contiguous along the fast dim, its rows too
};

/// Power of two that scales a line: its maximum lands in [2^14, 2^15). Between -113 and 163.
__device__ __forceinline__ int split_exponent(unsigned max_bits) {
  if (max_bits == 0 || max_bits >= kInfinityBits) return 0;
  const int floor_log2 = max_bits >= 0x00800000u ? static_cast<int>(max_bits >> 23) - 127 : -118 - __clz(static_cast<int>(max_bits));
  return 14 - floor_log2;
}

/// 2^e as a float, for e in [-126, 127].
__device__ __forceinline__ float power_of_two(int e) { return __int_as_float((e + 127) << 23); }

/// Quality of a line's split, for pairs_well().
struct LineQuality {
  bool carried;
  int density;  ///< dense elements in 1/256 of K; above that for zeros, far below for Inf and NaN
};
__device__ __forceinline__ LineQuality line_quality(const LineStats& s, int k) {
  if (s.max_bits >= kInfinityBits) return {false, -4096};
  if (s.max_bits == 0) return {true, 512};
  const bool few = static_cast<unsigned long long>(s.lossy) * 256 <= static_cast<unsigned>(k);
  return {s.lossy == 0, few ? static_cast<int>(static_cast<unsigned long long>(s.dense) * 256 / static_cast<unsigned>(k)) : 0};
}
__device__ __forceinline__ bool pairs_well(LineQuality a, LineQuality b) {
  return (a.carried && b.carried) || a.density + b.density >= 256 + 32;
}

/// Epilogue transform: takes the scales of row and column out again, with one rounding (ldexpf where the factor is no normal float).
template <class Next>
struct Rescale {
  const LineStats *a, *b;
  std::int64_t batch_stride_a, batch_stride_b;  ///< in lines; 0 where the operand is shared by all batches
  Next next;

  struct Row {
    int exponent;
    decltype(next.row(0, 0)) state;
  };
  struct Column {
    int exponent;
    decltype(next.column(0, 0)) state;
  };
  __device__ __forceinline__ Row row(int batch, int row) const {
    return {split_exponent(__ldg(&a[batch * batch_stride_a + row].max_bits)), next.row(batch, row)};
  }
  __device__ __forceinline__ Column column(int batch, int column) const {
    return {split_exponent(__ldg(&b[batch * batch_stride_b + column].max_bits)), next.column(batch, column)};
  }
  __device__ __forceinline__ float operator()(float sum, const Row& r, const Column& c, int batch, int row, int column) const {
    const int e = -(r.exponent + c.exponent);
    const float value = e >= -126 && e <= 127 ? sum * power_of_two(e) : ldexpf(sum, e);
    return next(value, r.state, c.state, batch, row, column);
  }
};

}  // namespace xgemm
