// Copies operands (Bits: an element's, 16 or 32) that TMA cannot load (misaligned base, strides that are no multiple of 16 bytes,
// no contiguous dim, several batch dims) to [batch][other][ld], ld a multiple of 16 bytes. Both operands of a product in one
// launch. Measured beside loads into the main loop itself: docs/log/matmul.md. Floor: their bytes read and written once.
#pragma once
#include <algorithm>

#include "device/bytes16.cuh"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "matmul/kernels/epilogue.cuh"
#include "matmul/tensor_plan.h"

namespace xgemm::matmul {

template <class Bits>
struct PackOperand {
  Operand operand;
  std::int64_t inner_stride, other_stride;
  Bits* out;
  std::int64_t ld, inner, other, batches;  ///< batches: 1 where all share the operand
  std::int64_t pieces;                     ///< of 16 bytes, in all; 0: the operand is not copied
};

template <class Bits>
struct PackArguments {
  Problem problem;  ///< batch dims
  PackOperand<Bits> operands[2];
  unsigned blocks_first;  ///< blocks for the first operand
};

/// A thread a piece of 16 bytes, neighbours along the inner dim.
template <class Bits>
__global__ void __launch_bounds__(256) pack(const __grid_constant__ PackArguments<Bits> g) {
  constexpr int kPiece = 16 / static_cast<int>(sizeof(Bits));
  ptx::grid_wait();
  ptx::grid_release();
  const bool second = blockIdx.x >= g.blocks_first;
  const PackOperand<Bits>& x = g.operands[second];
  const unsigned block = second ? blockIdx.x - g.blocks_first : blockIdx.x,
                 blocks = second ? gridDim.x - g.blocks_first : g.blocks_first;
  const std::int64_t per_line = x.ld / kPiece;
  for (std::int64_t i = block * std::int64_t{256} + threadIdx.x; i < x.pieces; i += blocks * std::int64_t{256}) {
    const std::int64_t line = x.pieces >> 32 ? i / per_line : static_cast<unsigned>(i) / static_cast<unsigned>(per_line);
    const std::int64_t first = (i - line * per_line) * kPiece, batch = x.batches == 1 ? 0 : line / x.other;
    const Bits* const in = static_cast<const Bits*>(x.operand.data) + batch_offset(g.problem, x.operand, batch) +
                           (line - batch * x.other) * x.other_stride;
    uint4 piece;
    if (x.inner_stride == 1 && first + kPiece <= x.inner) {
      piece = load_shifted16(in + first);
    } else {
      Pack<Bits> values;
#pragma unroll
      for (int j = 0; j < kPiece; ++j) values.values[j] = first + j < x.inner ? in[(first + j) * x.inner_stride] : Bits{0};
      piece = as_raw(values);
    }
    *reinterpret_cast<uint4*>(x.out + i * kPiece) = piece;
  }
}

/// An operand for launch_pack(): to where its plan has its copy, if it has one.
template <class Bits>
PackOperand<Bits> pack_operand(const Operand& x, const TensorOperand& t, std::int64_t line_stride, std::int64_t k_stride,
                               unsigned char* workspace) {
  constexpr std::int64_t kPiece = 16 / sizeof(Bits);
  return {.operand = x,
          .inner_stride = t.k_major ? k_stride : line_stride,
          .other_stride = t.k_major ? line_stride : k_stride,
          .out = reinterpret_cast<Bits*>(workspace + t.copy),
          .ld = t.ld,
          .inner = t.inner,
          .other = t.other,
          .batches = t.batches,
          .pieces = t.copied ? t.batches * t.other * (t.ld / kPiece) : 0};
}

/// Both in one launch, or none where nothing is to be copied.
template <class Bits>
void launch_pack(const Problem& p, const PackOperand<Bits>& first, const PackOperand<Bits>& second, cudaStream_t stream) {
  const auto blocks = [](const PackOperand<Bits>& x) {
    return static_cast<unsigned>(std::min<std::int64_t>((x.pieces + 255) / 256, 1 << 20));
  };
  const unsigned all = blocks(first) + blocks(second);
  const PackArguments<Bits> g{.problem = p, .operands = {first, second}, .blocks_first = blocks(first)};
  if (all > 0) enqueue(pack<Bits>, {.blocks = dim3(all), .threads = dim3(256), .early = true}, stream, g);
}

}  // namespace xgemm::matmul
