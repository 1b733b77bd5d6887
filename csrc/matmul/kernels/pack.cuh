// Copies a half-precision operand that TMA cannot load (misaligned base, strides that are no multiple of 16 bytes, no contiguous dim,
// several batch dims) to [batch][other][ld], ld a multiple of 8 elements. Floor: its bytes read and written once.
#pragma once
#include "device/vector.cuh"
#include "matmul/kernels/epilogue.cuh"

namespace xgemm::matmul {

struct PackArguments {
  Problem problem;  ///< batch dims
  Operand operand;
  std::int64_t inner_stride, other_stride;
  std::uint16_t* out;
  std::int64_t ld, inner, other, batches;  ///< batches: 1 where all share the operand
};

/// A thread a piece of eight elements, neighbours along the inner dim.
__global__ void __launch_bounds__(256) pack(const __grid_constant__ PackArguments g) {
  const std::int64_t pieces = g.ld / 8, count = g.batches * g.other * pieces;
  for (std::int64_t i = blockIdx.x * std::int64_t{256} + threadIdx.x; i < count; i += gridDim.x * std::int64_t{256}) {
    const std::int64_t line = i / pieces, first = (i - line * pieces) * 8, batch = line / g.other;
    const std::uint16_t* const in = static_cast<const std::uint16_t*>(g.operand.data) + batch_offset(g.problem, g.operand, batch) +
                                    (line - batch * g.other) * g.other_stride;
    Vector<std::uint16_t, 8> piece;
#pragma unroll
    for (int j = 0; j < 8; ++j) piece[j] = first + j < g.inner ? in[(first + j) * g.inner_stride] : std::uint16_t{0};
    store_vector(g.out + i * 8, piece);
  }
}

}  // namespace xgemm::matmul
