// What the plans of tf32 and presplit share: C is cut in tiles of x by y lines, and K in splits. Pure host code.
#pragma once
#include <algorithm>

#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

struct Fp32TilesPlan {
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

  /// Cuts K of all `tiles` in up to `wanted` splits for `slots` CTAs at once. Returns how many items the busiest CTA has.
  std::int64_t cut(std::int64_t tiles, std::int64_t wanted, std::int64_t slots) {
    split_blocks = ceil_div(blocks, wanted), splits = ceil_div(blocks, split_blocks);
    ctas = std::min(slots, tiles * splits);
    return ceil_div(tiles * splits, ctas);
  }
};

}  // namespace xgemm::matmul
