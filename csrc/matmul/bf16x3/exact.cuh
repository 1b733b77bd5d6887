// bf16x3: sums that bf16 parts cannot represent, by fused multiply-adds: numbers under 2^-109, numbers that round to infinity,
// and products beyond fp32's range.
#pragma once
#include "device/ptx/warpgroup.cuh"
#include "matmul/bf16x3/fragments.cuh"
#include "matmul/bf16x3/scheduler.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul::bf16x3 {

inline constexpr int kFarReach = 1024;

/// The largest biased exponent of the finite numbers that this thread of 128 reads, of `lines`, k from `begin` to `end`;
/// kFarReach if a number is extreme (fp16_split/line_scale.cuh).
__device__ __forceinline__ int reach_of(const float* x, int lines, std::int64_t line_stride, std::int64_t k_stride,
                                        std::int64_t begin, std::int64_t end) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const bool along_k = k_stride == 1;  // lanes along what is contiguous, warps along the other
  const std::int64_t inner_end = along_k ? end : lines, outer_end = along_k ? lines : end;
  const std::int64_t inner_stride = along_k ? k_stride : line_stride, outer_stride = along_k ? line_stride : k_stride;
  unsigned top = 0;
  bool extreme = false;
#pragma unroll 1
  for (std::int64_t outer = (along_k ? 0 : begin) + warp; outer < outer_end && !extreme; outer += 16) {
#pragma unroll 1
    for (std::int64_t inner = (along_k ? begin : 0) + lane; inner < inner_end; inner += 128) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const bool inside = outer + 4 * i < outer_end && inner + 32 * j < inner_end;
          const float value = inside ? x[(outer + 4 * i) * outer_stride + (inner + 32 * j) * inner_stride] : 0.f;
          const unsigned bits = __float_as_uint(value) & 0x7fffffffu;
          extreme |= is_extreme(bits);
          top = max(top, bits < kInfinityBits ? bits : 0u);
        }
    }
  }
  return extreme ? kFarReach : static_cast<int>(top >> 23);
}

/// Is there a number that three bf16 parts cannot represent, or may a sum of products leave fp32's range? `scratch`: two words.
__device__ __forceinline__ bool beyond_parts(const float* a, int rows, std::int64_t row_stride, std::int64_t a_stride,
                                             const float* b, int columns, std::int64_t column_stride, std::int64_t b_stride,
                                             std::int64_t begin, std::int64_t end, int barrier, int* scratch) {
  if (threadIdx.x % 128 < 2) scratch[threadIdx.x % 128] = 0;
  ptx::named_barrier_sync(barrier, 128);
  const int reach_a = __reduce_max_sync(kFullWarp, reach_of(a, rows, row_stride, a_stride, begin, end)),
            reach_b = __reduce_max_sync(kFullWarp, reach_of(b, columns, column_stride, b_stride, begin, end));
  if (threadIdx.x % 32 == 0) {
    atomicMax(&scratch[0], reach_a);
    atomicMax(&scratch[1], reach_b);
  }
  ptx::named_barrier_sync(barrier, 128);
  const bool beyond = scratch[0] + scratch[1] >= bf16x3_reach_limit(end - begin);
  ptx::named_barrier_sync(barrier, 128);  // before scratch is used again
  return beyond;
}

/// Computes the sums by fused multiply-adds: C^T in wgmma's register layout, k from `begin` to `end`. `p`: what has the strides
/// of A and B. `stage`: (64 + kRows) * 8 floats.
template <class Product>
__device__ __forceinline__ void exact_sums(float (&sums)[kRows / 2], const Product& p, const float* a, const float* b, int rows,
                                           int columns, std::int64_t begin, std::int64_t end, float* stage, int barrier,
                                           int first_line, int second_line) {
  constexpr int kDepth = 8;
  const int thread = thread_index() % 128, quad = thread % 4;
  float* const of_b = stage + kDepth * kRows;
#pragma unroll
  for (float& sum : sums) sum = 0;
  constexpr int kChunk = 16;  // short chains; `off` keeps the rounding errors of their addition, as K may be long
  float chunk[kRows / 2] = {}, off[kRows / 2] = {};
  for (std::int64_t k0 = begin; k0 < end; k0 += kDepth) {
    ptx::named_barrier_sync(barrier, 128);
    for (int i = thread; i < kDepth * (kRows + 64); i += 128) {
      const bool is_b = i >= kDepth * kRows;
      const int at = is_b ? i - kDepth * kRows : i, lines = is_b ? 64 : kRows;
      const std::int64_t line_stride = is_b ? p.b.col_stride : p.a.row_stride, k_stride = is_b ? p.b.row_stride : p.a.col_stride;
      const int line = k_stride == 1 ? at / kDepth : at % lines, k = k_stride == 1 ? at % kDepth : at / lines;
      const bool inside = line < (is_b ? columns : rows) && k0 + k < end;
      (is_b ? of_b : stage)[k * lines + line] = inside ? (is_b ? b : a)[line * line_stride + (k0 + k) * k_stride] : 0.f;
    }
    ptx::named_barrier_sync(barrier, 128);
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      const float x = of_b[k * 64 + first_line], y = of_b[k * 64 + second_line];
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        const auto rows_here = load_vector<2>(stage + k * kRows + 8 * j + 2 * quad);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          chunk[4 * j + c] = fmaf(x, rows_here[c], chunk[4 * j + c]);
          chunk[4 * j + 2 + c] = fmaf(y, rows_here[c], chunk[4 * j + 2 + c]);
        }
      }
    }
    if ((k0 - begin) % kChunk == kChunk - kDepth || k0 + kDepth >= end) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        const float sum = sums[i] + chunk[i];
        off[i] += chunk[i] - (sum - sums[i]);
        sums[i] = sum;
        chunk[i] = 0;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sums[i] += finite_part(off[i]);
  ptx::named_barrier_sync(barrier, 128);
}

/// Computes a tile's sums again, exactly, if the parts cannot represent its operands.
template <Bf16x3Config kConfig>
__device__ __forceinline__ void redo_sums(float (&sums)[kRows / 2], const Bf16x3Arguments& g, const Fallback& fallback,
                                          const Scheduler<kConfig>& work, const FragmentPlace<kConfig>& place,
                                          const TileOrigin& at, int rows, int columns, int column0, float* stage, int barrier) {
  const Problem& p = g.problem;
  const float *const a = static_cast<const float*>(p.a.data) + batch_offset(p, p.a, at.batch) + at.row * p.a.row_stride,
                     *const b = static_cast<const float*>(p.b.data) + batch_offset(p, p.b, at.batch) + column0 * p.b.col_stride;
  const std::int64_t begin = static_cast<std::int64_t>(work.block) * kBlock,
                     end = min(p.k, static_cast<std::int64_t>(work.end) * kBlock);
  // Lifted sums may overflow where the others would not.
  if ((kConfig.fallback && fallback.lifts_any) ||
      beyond_parts(a, rows, p.a.row_stride, p.a.col_stride, b, columns, p.b.col_stride, p.b.row_stride, begin, end, barrier,
                   reinterpret_cast<int*>(stage)))
    exact_sums(sums, p, a, b, rows, columns, begin, end, stage, barrier, place.first, place.second);
}

}  // namespace xgemm::matmul::bf16x3
