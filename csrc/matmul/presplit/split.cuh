// presplit: the pass. Splits both operands of an fp32 product in three bf16 parts (bf16x3/parts.cuh), in one launch.
//
//   Layouts   any strides and batch dims in; out [batch][part][line][ld], K-major, ld a multiple of 64. Nothing is written past
//             the last line; k past the last is zero up to the unit's end.
//   Roles     A CTA takes 64 lines by 64 of k: reads along the contiguous dim, writes 128 bytes of each line and part, and says
//             whether the parts represent all of its numbers.
//
// Floor: 4 bytes read and 6 written per number.
#pragma once
#include "device/ptx/grid.cuh"
#include "matmul/bf16x3/parts.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/epilogue/batch.cuh"
#include "matmul/presplit/arguments.cuh"

namespace xgemm::matmul {

inline constexpr int kSplitPartsThreads = 256;

__global__ void __launch_bounds__(kSplitPartsThreads, 4) split_in_parts(const __grid_constant__ SplitPartsArguments g) {
  constexpr int kUnit = kPresplitUnit, kStep = kSplitPartsThreads / kUnit, kPitch = kUnit + 1;
  __shared__ float numbers[kUnit][kPitch];
  ptx::grid_wait();
  ptx::grid_release();
  const bool second = blockIdx.x >= g.first;
  const SplitOperand& x = g.operands[second];
  unsigned rest = second ? blockIdx.x - g.first : blockIdx.x;
  const unsigned unit_k = rest % g.units_k;
  rest /= g.units_k;
  const unsigned unit = rest % x.units, batch = rest / x.units;
  const int line0 = static_cast<int>(unit) * kUnit, k0 = static_cast<int>(unit_k) * kUnit;
  std::int64_t offset = line0 * x.line_stride + k0 * x.k_stride;
  each_batch_dim(g, batch, [&](int d, std::int64_t at) { offset += at * x.operand.batch_stride[d]; });
  const float* const in = static_cast<const float*>(x.operand.data) + offset;
  const int lines = x.lines - line0, depth = x.k - k0, thread = static_cast<int>(threadIdx.x);
  {
    const bool along_k = x.k_stride <= x.line_stride;
    const int inner = thread % kUnit, outer = thread / kUnit;
    const std::int64_t inner_stride = along_k ? x.k_stride : x.line_stride, outer_stride = along_k ? x.line_stride : x.k_stride;
    const int inner_left = along_k ? depth : lines, outer_left = along_k ? lines : depth;
    float values[kUnit / kStep];
#pragma unroll
    for (int i = 0; i < kUnit / kStep; ++i) {
      const int at = outer + i * kStep;
      values[i] = inner < inner_left && at < outer_left ? in[inner * inner_stride + at * outer_stride] : 0.f;
    }
#pragma unroll
    for (int i = 0; i < kUnit / kStep; ++i) {
      const int at = outer + i * kStep;
      numbers[along_k ? at : inner][along_k ? inner : at] = values[i];
    }
  }
  __syncthreads();
  constexpr int kQuads = kUnit / 4, kLines = kSplitPartsThreads / kQuads;
  const int k = thread % kQuads * 4;
  __nv_bfloat16* const out = x.parts + static_cast<std::int64_t>(batch) * kPresplitParts * x.plane + line0 * x.ld + k0 + k;
  std::uint32_t lost = 0;
#pragma unroll
  for (int line = thread / kQuads; line < kUnit; line += kLines) {
    std::uint32_t low[kPresplitParts], high[kPresplitParts];
    bf16x3::split_pair(numbers[line][k], numbers[line][k + 1], low, lost);
    bf16x3::split_pair(numbers[line][k + 2], numbers[line][k + 3], high, lost);
    if (line < lines) {
#pragma unroll
      for (int part = 0; part < kPresplitParts; ++part)
        *reinterpret_cast<uint2*>(out + part * x.plane + line * x.ld) = {low[part], high[part]};
    }
  }
  const bool any = __syncthreads_or(bf16x3::any_lost(lost));
  if (thread == 0) x.lost[(static_cast<std::int64_t>(batch) * x.units + unit) * g.units_k + unit_k] = any;
}

}  // namespace xgemm::matmul
