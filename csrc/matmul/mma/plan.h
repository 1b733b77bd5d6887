// Problem -> the one-launch half-precision kernel for small and narrow products, mma/kernel.cuh. Pure host code.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

enum class MmaTile : std::uint8_t { t16x64, t32x32, t32x64, t64x64, t128x32 };

/// A tile of mma/kernel.cuh and its cost model (microseconds of an H200; measured).
struct MmaTileInfo {
  std::string_view name;
  int rows, columns;              ///< of C
  int warps_rows, warps_columns;  ///< of a block
  int stages;                     ///< most k-blocks in flight
  int beside;                     ///< CTAs per SM that registers allow
  double start, block;            ///< an SM's first tile: before and after its k-blocks, and per k-block
  double more, more_block;        ///< each further tile
};
inline constexpr int kMmaTileK = 64;
inline constexpr std::array<MmaTileInfo, 5> kMmaTiles{{
    {"mma_16x64", 16, 64, 1, 4, 6, 4, 1.30, 0.199, 0.333, 0.124},  // few rows
    {"mma_32x32", 32, 32, 2, 2, 6, 4, 1.33, 0.179, 0.419, 0.147},
    {"mma_32x64", 32, 64, 2, 2, 6, 3, 1.37, 0.253, 0.419, 0.115},
    {"mma_64x64", 64, 64, 2, 2, 6, 4, 1.41, 0.384, 0.50, 0.242},
    {"mma_128x32", 128, 32, 4, 1, 4, 4, 1.25, 0.42, 0.64, 0.25},
}};
constexpr const MmaTileInfo& info(MmaTile t) { return kMmaTiles[static_cast<std::size_t>(t)]; }

struct MmaPlan {
  MmaTile tile;
  int bytes_a, bytes_b;  ///< multiples of which an operand's rows start and end at: 16, 4 or 2
  double seconds;        ///< predicted
  bool is_unaligned() const { return bytes_a < 16 || bytes_b < 16; }
};

/// Nothing if the kernel cannot do the problem. `forced`: a tile's name, or "mma" for any.
std::optional<MmaPlan> plan_mma(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

struct WgmmaPlan;

/// The bits are those of wgmma/kernel.cuh, so the choice between the two may look at M.
bool mma_pays(const MmaPlan& mma, const WgmmaPlan& tensor);

}  // namespace xgemm::matmul
