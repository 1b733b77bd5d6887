// Problem -> tensor-core kernel (wgmma/kernel.cuh), tile, split and workspace. Pure host code, tested without a GPU.
//
// Order of additions: a function of N, K and the dtype (see `chunk` and `splits`), never of M, the batch or the tile.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/bf16x3/plan.h"
#include "matmul/simt/plan.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr int kWgmmaTileK = 64;
inline constexpr int kMaxCluster = 8;     ///< CTAs of a cluster
inline constexpr int kMaxSplits = 128;    ///< parts of K
inline constexpr int kSplitMultiple = 4;  ///< k-blocks that a split's length is a multiple of: what any slot holds

/// A tile of C that one CTA computes: a row of kWgmmaTiles, whose order is that of WgmmaTile.
struct WgmmaTileInfo {
  std::string_view name;  ///< rows by columns of C
  int m, n;               ///< rows and columns
  int blocks;             ///< k-blocks per slot: small tiles are limited by the hand-over of slots
  // Cost model, in cycles of an H200: a k-block of 64 when L2 is not the limit; filling the pipeline and storing C.
  double block, fixed;
  // fp32 and gated (0: unsupported): a k-block of one product; storing C of fp32 in one part, in two.
  double block_fp32 = 0, fixed_high = 0, fixed_highest = 0;
};
enum class WgmmaTile : std::uint8_t { t128x256, t128x192, t128x128, t128x64, t64x64, t64x32 };
inline constexpr auto kWgmmaTiles = std::to_array<WgmmaTileInfo>({
    // name, m, n, blocks; block, fixed; block_fp32, fixed_high, fixed_highest
    {"wgmma_128x256", 128, 256, 1, 1050, 2600, 1024 / 0.90, 1500, 1500},  // the least shared-memory and L2 traffic per product
    {"wgmma_128x192", 128, 192, 1, 830, 2200},                            // half precision: the same where it fills whole waves
    {"wgmma_128x128", 128, 128, 1, 600, 1520, 702, 966, 3480},            // fewer columns, or fp32: room for the promoted sums
    {"wgmma_128x64", 128, 64, 2, 330, 1420, 427, 2280, 1210},             // small products: enough tiles for all SMs
    {"wgmma_64x64", 64, 64, 2, 210, 860, 321, 1000, 905},                 // few rows: limited by reading B; smaller products
    {"wgmma_64x32", 64, 32, 2, 140, 130},                                 // half precision, a K-major B
});
static_assert(kWgmmaTiles.size() == static_cast<std::size_t>(WgmmaTile::t64x32) + 1);
/// A multicast pair shares the operand of which a tile has more lines: A (its tiles lie side by side) or B (one above the
/// other).
constexpr bool shares_a(int tile_m, int tile_n) { return tile_m > tile_n; }
constexpr const WgmmaTileInfo& info(WgmmaTile t) { return kWgmmaTiles[static_cast<std::size_t>(t)]; }

/// Prepared weight (n, k): its parts, K-major, then its lines' statistics. Offsets and sizes in bytes.
struct PreparedLayout {
  std::int64_t ld, stats, bytes;  ///< ld in elements
};
constexpr PreparedLayout prepared_layout(std::int64_t n, std::int64_t k, int parts) {
  const std::int64_t ld = (k + 7) / 8 * 8, stats = (2 * parts * n * ld + 255) / 256 * 256;
  return {ld, stats, stats + 16 * n};
}
/// A prepared weight as operand of a product.
TensorOperand prepared_operand(std::int64_t n, std::int64_t k, int parts);

/// Parts that fp32 operands are split into; 0: not split.
constexpr int split_parts(Precision precision) {
  return precision == Precision::highest ? 2 : precision == Precision::ieee ? 0 : 1;
}

struct WgmmaPlan {
  int parts;  ///< fp16 parts that fp32 operands are split in: 2 "highest", 1 "high" and "medium"; 0: half-precision operands
  WgmmaTile tile;
  std::int64_t chunk;  ///< k-length of a promoted sum ("highest"), else a split's k-length; a multiple of kWgmmaTileK
  // A tile's `splits` partial sums are added in order: by one CTA in registers, by a cluster of `cluster` CTAs with a split
  // each, or by `memory_splits` CTAs with a split each through memory.
  std::int64_t splits;                  ///< parts of K, each summed from zero
  std::int64_t cluster, memory_splits;  ///< each 1 or `splits`
  std::int64_t columns;                 ///< of C per tile: the tile's, or fewer to keep all SMs equally busy
  bool multicast;                       ///< CTA pairs load half of a shared operand each, for both (shares_a)
  std::int64_t split_length;            ///< k-length of a split, a multiple of `chunk`
  TensorOperand a, b;
  TensorOperand up;      ///< of a gated problem
  bool b_as_it_lies;     ///< TMA cannot load b, and it is read in place: wgmma/few_rows.cuh
  SimtPlan fallback;     ///< fp32: CUDA cores, for the elements that fp16 parts cannot represent
  SimtPlan fallback_up;  ///< the same of a gated problem's other product
  double seconds;        ///< predicted; of a batch-invariant fp32 problem: with_many_rows
  std::int64_t workspace_bytes;
  std::int64_t partial_bytes;                 ///< sums of `memory_splits`
  std::int64_t counter_bytes;                 ///< zeros before and after the launch
  std::optional<Bf16x3Plan> fallback_bf16x3;  ///< instead of `fallback`
  std::int64_t list;                          ///< its list's offset in the workspace
};

/// Splits of K for half precision: more than one if N is small, so that few tiles still fill the GPU; at least 768 long each.
/// With a large M one CTA adds the splits in registers, which costs some per cent.
std::int64_t wgmma_splits(std::int64_t n, std::int64_t k);

/// Columns of C that a tile has: gated, half of its columns are the other weight's.
constexpr int columns(const Problem& p, WgmmaTile t) { return p.gated ? info(t).n / 2 : info(t).n; }

/// Nothing if the tensor cores cannot do the problem. `forced`: a tile's name, or "wgmma" for any; a tile that cannot do the
/// problem leaves the choice free. Half precision's plan looks at N, K, dtype and layout only; fp32's at M, too, unless the
/// problem is batch_invariant.
std::optional<WgmmaPlan> plan_wgmma(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
