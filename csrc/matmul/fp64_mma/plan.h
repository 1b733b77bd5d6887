// Problem -> the fp64 kernel on tensor cores, fp64_mma/kernel.cuh. Pure host code.
//
// Order of additions. K is divided into segments (fp64_segment: a function of N and K). A segment's products go through
// mma.sync 16 k at a time, in order, from zero; the segments' sums are added in order. Every tile and every split does exactly
// this, so a row's bits depend on N and K alone.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

inline constexpr int kFp64TileK = 16;  ///< k of a k-block and of an mma

enum class Fp64Tile : std::uint8_t { t128x96, t64x128, t96x64, t64x64, t64x32, t16x64 };

/// A tile of fp64_mma/kernel.cuh.
struct Fp64TileInfo {
  static constexpr int kProducers = 128;  ///< threads that only load: a warpgroup, which hands over its registers
  std::string_view name;
  int rows, columns;              ///< of C
  int warps_rows, warps_columns;  ///< that multiply
  int per_sm;                     ///< CTAs per SM that registers are budgeted for
  int slots;                      ///< k-blocks in shared memory
  int slots_beside_totals;        ///< the same beside the sums of finished segments
  double alone, busy;             ///< microseconds of a k-block: of one CTA alone on an SM; of each of several
  double fixed;                   ///< microseconds of a CTA's start and end
  constexpr int consumers() const { return 32 * warps_rows * warps_columns; }
  constexpr int threads() const { return consumers() + kProducers; }
  constexpr int registers() const { return 65536 / per_sm / threads() / 8 * 8; }  ///< of a thread at the launch
  constexpr int slot_bytes() const { return 8 * kFp64TileK * (rows + columns); }
  /// Shared memory of a CTA; `totals`: it adds up segments.
  constexpr int shared_bytes(bool totals) const {
    return 128 + (totals ? slots_beside_totals : slots) * slot_bytes() + (totals ? 8 * rows * columns : 0);
  }
};
inline constexpr std::array<Fp64TileInfo, 6> kFp64Tiles{{
    {"fp64_128x96", 128, 96, 4, 2, 1, 8, 4, 0.89, 0.89, 2.8},  // up to 96 columns
    {"fp64_64x128", 64, 128, 2, 2, 2, 4, 2, 0.69, 0.54, 2.6},  // large products, batches
    {"fp64_96x64", 96, 64, 2, 2, 2, 5, 3, 0.53, 0.405, 2.4},   // large products
    {"fp64_64x64", 64, 64, 2, 2, 2, 6, 5, 0.335, 0.284, 2.3},  // up to 64 rows with a large B
    {"fp64_64x32", 64, 32, 2, 2, 3, 6, 4, 0.30, 0.17, 1.25},   // few columns
    {"fp64_16x64", 16, 64, 1, 4, 3, 7, 6, 0.25, 0.117, 1.0},   // few rows, small products
}};
constexpr const Fp64TileInfo& info(Fp64Tile t) { return kFp64Tiles[static_cast<std::size_t>(t)]; }

struct Fp64Plan {
  Fp64Tile tile;
  std::int64_t blocks;        ///< k-blocks
  std::int64_t segment;       ///< k-blocks of a segment
  std::int64_t split_blocks;  ///< k-blocks of a CTA: all, or whole segments
  std::int64_t splits;        ///< CTAs that share a tile's k; more than 1: segments' sums through the workspace
  std::int64_t workspace_bytes;
  double seconds;  ///< predicted
};

/// k-blocks of a segment.
std::int64_t fp64_segment(std::int64_t n, std::int64_t k);

/// Nothing if it does not apply: other GPUs and dtypes, at most 4 columns (gemv/gemv.cuh). `forced`: "fp64" for any tile, a
/// tile's name, or that and the number of splits ("fp64_64x64/4").
std::optional<Fp64Plan> plan_fp64(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

}  // namespace xgemm::matmul
