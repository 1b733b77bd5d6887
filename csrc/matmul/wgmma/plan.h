// The plan of wgmma/kernel.cuh and wgmma/few_rows.cuh: tile, splits, operands and workspace.
#pragma once
#include <optional>

#include "matmul/bf16x3/plan.h"
#include "matmul/order.h"
#include "matmul/plan/tiles.h"
#include "matmul/simt/plan.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

/// A multicast pair shares the operand of which a tile has more lines: A (its tiles lie side by side) or B (one above the
/// other).
constexpr bool shares_a(int tile_m, int tile_n) { return tile_m > tile_n; }

/// Prepared weight (n, k): its parts, K-major, then its lines' statistics. Offsets and sizes in bytes.
struct PreparedLayout {
  std::int64_t ld, stats, bytes;  ///< ld in elements
};
constexpr PreparedLayout prepared_layout(std::int64_t n, std::int64_t k, int parts) {
  const std::int64_t ld = (k + 7) / 8 * 8, stats = (2 * parts * n * ld + 255) / 256 * 256;
  return {ld, stats, stats + 16 * n};
}
/// A prepared weight as operand of a product.
constexpr TensorOperand prepared_operand(std::int64_t n, std::int64_t k, int parts) {
  const PreparedLayout layout = prepared_layout(n, k, parts);
  return {.copied = true,
          .prepared = true,
          .k_major = true,
          .inner = k,
          .other = n,
          .ld = layout.ld,
          .plane = n * layout.ld,
          .batch_step = 0,
          .batches = 1,
          .copy = 0,
          .stats = layout.stats};
}

/// Parts that fp32 operands are split into; 0: not split.
constexpr int split_parts(Precision precision) {
  return precision == Precision::highest ? 2 : precision == Precision::ieee ? 0 : 1;
}

/// How CTAs share a product. A tile's `splits` partial sums are added in order: by one CTA in registers, by a cluster of
/// `cluster` CTAs with a split each, or by `memory_splits` CTAs with a split each through memory.
struct WgmmaTiling {
  WgmmaTile tile;
  std::int64_t splits = 1;                      ///< of K, each summed from zero
  std::int64_t cluster = 1, memory_splits = 1;  ///< each 1 or `splits`
  std::int64_t columns = 0;                     ///< of C per tile: the tile's, or fewer to keep all SMs equally busy
  bool multicast = false;                       ///< CTA pairs load half of a shared operand each, for both (shares_a)
};

struct WgmmaPlan : WgmmaTiling {
  bool swapped;  ///< of the transposed problem, whose operands and tiling these are
  int parts;     ///< fp16 parts that fp32 operands are split in: 2 "highest", 1 "high" and "medium"; 0: half-precision operands
  std::int64_t chunk;         ///< k-length of a sum of small products ("highest"), else of a split; a multiple of kWgmmaTileK
  std::int64_t split_length;  ///< k-length of a split, a multiple of `chunk`
  TensorOperand a, b, up;     ///< up: of a gated problem
  bool b_as_it_lies;          ///< TMA cannot load b, and it is read in place: wgmma/few_rows.cuh
  SimtPlan fallback;          ///< fp32: CUDA cores, for the elements that fp16 parts cannot represent
  SimtPlan fallback_up;       ///< the same of a gated problem's other product
  double seconds;             ///< predicted
  std::int64_t workspace_bytes;
  std::int64_t partial_bytes;                 ///< sums of `memory_splits`
  std::int64_t counter_bytes;                 ///< zeros before and after the launch
  std::optional<Bf16x3Plan> fallback_bf16x3;  ///< instead of `fallback`
  std::int64_t list;                          ///< its list's offset in the workspace
};

}  // namespace xgemm::matmul
