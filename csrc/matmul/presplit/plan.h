// Problem -> the fp32 kernel whose operands a pass has split in three bf16 parts (presplit/kernel.cuh). Pure host code.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/fp32_tiles/plan.h"

namespace xgemm::matmul {

inline constexpr int kPresplitTileK = 64;  ///< k of a block, after which sums are promoted
inline constexpr int kPresplitParts = 3;
inline constexpr int kPresplitUnit = 64;  ///< lines and k of what one CTA of the pass splits; one flag each

/// x rows of A by y columns of B per CTA.
enum class PresplitTile : std::uint8_t { t128x128, t128x64 };
struct PresplitTileInfo {
  std::string_view name;
  int x, y;
  double block;  ///< cycles of an H200 under load for a k-block
  double fixed;  ///< filling the pipeline, storing C
};
inline constexpr std::array<PresplitTileInfo, 2> kPresplitTiles{{
    {"presplit_128x128", 128, 128, 4120, 3850},  // the least traffic
    {"presplit_128x64", 128, 64, 1980, 3590},    // twice the tiles: small products
}};
constexpr const PresplitTileInfo& info(PresplitTile t) { return kPresplitTiles[static_cast<std::size_t>(t)]; }

/// a and b: copies: their parts, K-major; `stats`: one byte for each unit of the pass.
struct PresplitPlan : Fp32TilesPlan {
  PresplitTile tile;
};

/// Units of the pass along an operand's lines and along k.
constexpr std::int64_t presplit_units(std::int64_t size) { return ceil_div(size, kPresplitUnit); }

/// Nothing if it does not apply: other GPUs, dtypes and precisions, batch-invariant problems (splits depend on M), gated ones,
/// prepared weights.
std::optional<PresplitPlan> plan_presplit(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
