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

enum class Fp64Tile : std::uint8_t {
  t128x128,
  t128x64,
  t64x64,
  t32x64,
  t16x64,
  t128x128_l,
  t128x96_l,
  t96x128_l,
  t128x64_l,
  t64x128_l,
  t96x64_l,
  t64x64_l,
  t64x32_l,
  t32x64_l,
  t16x64_l
};

/// A tile of fp64_mma/kernel.cuh.
struct Fp64TileInfo {
  std::string_view name;
  int rows, columns;              ///< of C
  int warps_rows, warps_columns;  ///< of a CTA
  int per_sm;                     ///< CTAs per SM that registers are budgeted for
  int slots;                      ///< k-blocks in shared memory
  int slots_beside_totals;        ///< the same beside the sums of finished segments; 0: no room
  double alone, busy;             ///< microseconds of a k-block: of one CTA alone on an SM; of each of several
  double fixed;                   ///< microseconds of a CTA's start and end
  int loaders = 0;                ///< threads that only load; 0: those that multiply also load
  constexpr int threads() const { return 32 * warps_rows * warps_columns; }                   ///< that multiply
  constexpr int registers() const { return 65536 / per_sm / (threads() + loaders) / 8 * 8; }  ///< of a thread at the launch
  constexpr int slot_bytes() const { return 8 * kFp64TileK * (rows + columns); }
  /// Shared memory of a CTA; `totals`: it adds up segments.
  constexpr int shared_bytes(bool totals) const {
    return 128 + (totals ? slots_beside_totals : slots) * slot_bytes() + (totals ? 8 * rows * columns : 0);
  }
};
inline constexpr std::array<Fp64TileInfo, 15> kFp64Tiles{{
    {"fp64_128x128", 128, 128, 2, 4, 1, 6, 3, 1.17, 1.17, 3.5},  // large products: the least L2 traffic, 16 bytes a cycle
    {"fp64_128x64", 128, 64, 2, 2, 2, 4, 0, 0.96, 0.55, 2.3},    // two CTAs hide each other's start and end
    {"fp64_64x64", 64, 64, 2, 2, 2, 6, 5, 0.51, 0.30, 1.6},      // fewer tiles
    {"fp64_32x64", 32, 64, 1, 4, 3, 6, 4, 0.41, 0.17, 1.9},      // up to 32 rows
    {"fp64_16x64", 16, 64, 1, 4, 3, 7, 6, 0.33, 0.077, 1.0},     // up to 16 rows: limited by memory
    {"fp64_128x128_l", 128, 128, 4, 2, 1, 6, 3, 1.06, 1.06, 2.5, 128},
    {"fp64_128x96_l", 128, 96, 4, 2, 1, 8, 4, 0.80, 0.80, 2.3, 128},
    {"fp64_96x128_l", 96, 128, 2, 4, 1, 8, 4, 0.80, 0.80, 2.3, 128},
    {"fp64_128x64_l", 128, 64, 4, 1, 2, 4, 2, 0.60, 0.53, 2.3, 128},
    {"fp64_64x128_l", 64, 128, 2, 2, 2, 4, 2, 0.60, 0.53, 2.3, 128},
    {"fp64_96x64_l", 96, 64, 2, 2, 2, 5, 3, 0.46, 0.40, 2.0, 128},
    {"fp64_64x64_l", 64, 64, 2, 2, 2, 6, 5, 0.31, 0.27, 1.6, 128},
    {"fp64_64x32_l", 64, 32, 2, 2, 3, 6, 4, 0.20, 0.15, 1.6, 128},
    {"fp64_32x64_l", 32, 64, 1, 4, 3, 6, 4, 0.20, 0.15, 1.6, 128},
    {"fp64_16x64_l", 16, 64, 1, 4, 3, 7, 6, 0.20, 0.077, 1.0, 128},
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
