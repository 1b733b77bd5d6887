// Copies half-precision operands that TMA cannot load (misaligned base, strides that are no multiple of 16 bytes, no contiguous
// dim, several batch dims) to [batch][other][ld], ld a multiple of 8 elements. Both operands of a product in one launch. Measured
// beside loads into the main loop itself: docs/log/matmul.md. Floor: their bytes read and written once.
#pragma once
#include "device/bytes16.cuh"
#include "device/ptx/grid.cuh"
#include "matmul/kernels/epilogue.cuh"

namespace xgemm::matmul {

struct PackOperand {
  Operand operand;
  std::int64_t inner_stride, other_stride;
  std::uint16_t* out;
  std::int64_t ld, inner, other, batches;  ///< batches: 1 where all share the operand
  std::int64_t pieces;                     ///< of eight elements, in all; 0: the operand is not copied
};

struct PackArguments {
  Problem problem;  ///< batch dims
  PackOperand operands[2];
  unsigned blocks_first;  ///< blocks for the first operand
};

/// A thread a piece of eight elements, neighbours along the inner dim.
__global__ void __launch_bounds__(256) pack(const __grid_constant__ PackArguments g) {
  ptx::grid_wait();
  ptx::grid_release();
  const bool second = blockIdx.x >= g.blocks_first;
  const PackOperand& x = g.operands[second];
  const unsigned block = second ? blockIdx.x - g.blocks_first : blockIdx.x,
                 blocks = second ? gridDim.x - g.blocks_first : g.blocks_first;
  const std::int64_t per_line = x.ld / 8;
  for (std::int64_t i = block * std::int64_t{256} + threadIdx.x; i < x.pieces; i += blocks * std::int64_t{256}) {
    const std::int64_t line = x.pieces >> 32 ? i / per_line : static_cast<unsigned>(i) / static_cast<unsigned>(per_line);
    const std::int64_t first = (i - line * per_line) * 8, batch = x.batches == 1 ? 0 : line / x.other;
    const std::uint16_t* const in = static_cast<const std::uint16_t*>(x.operand.data) +
                                    batch_offset(g.problem, x.operand, batch) + (line - batch * x.other) * x.other_stride;
    uint4 piece;
    if (x.inner_stride == 1 && first + 8 <= x.inner) {
      piece = load_shifted16(in + first);
    } else {
      Pack<std::uint16_t> values;
#pragma unroll
      for (int j = 0; j < 8; ++j) values.values[j] = first + j < x.inner ? in[(first + j) * x.inner_stride] : std::uint16_t{0};
      piece = as_raw(values);
    }
    *reinterpret_cast<uint4*>(x.out + i * 8) = piece;
  }
}

}  // namespace xgemm::matmul
