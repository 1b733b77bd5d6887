// The plan of the fp32 kernel that multiplies in tf32 (tf32/kernel.cu), for "high" and "medium".
#pragma once
#include "matmul/plan/tiles.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr int kTf32TileK = 32;  ///< k per k-block: 128 bytes

/// C is cut in tiles of x by y lines: rows of A and columns of B, or (swap_ab) the reverse. a and b: copies of what TMA cannot
/// load; the one of x may be MN-major, that of y is K-major: if both operands are MN-major, one is packed along k. A block of K:
/// a slot's.
struct Tf32Plan {
  Tf32Tile tile;
  bool swap_ab;
  TensorOperand a, b;
  std::int64_t tiles_x, tiles_y;  ///< of C of a batch
  std::int64_t blocks;            ///< of K: what a tile's main loop adds at a time
  std::int64_t splits;            ///< of K, `split_blocks` blocks and one CTA each; their sums are added in order
  std::int64_t split_blocks;
  std::int64_t ctas;             ///< tiles times splits; at most as many as run at once
  std::int64_t partial_bytes;    ///< partial sums of splits
  std::int64_t workspace_bytes;  ///< copies of operands
  std::int64_t counter_bytes;    ///< zeros before and after the launch
  double seconds;                ///< predicted
};

}  // namespace xgemm::matmul
