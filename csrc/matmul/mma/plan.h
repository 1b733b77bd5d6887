// Problem -> the one-launch kernel for half-precision products that are small or narrow, and for fp32 ones in tf32 ("high" and
// "medium"), mma/kernel.cuh. Pure host code.
#pragma once
#include <array>
#include <optional>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

enum class MmaTile : std::uint8_t { t16x64, t32x32, t64x64, tf32_64x64, tf32_128x64, tf32_64x128 };

/// A tile of mma/kernel.cuh and its cost model (microseconds of an H200; measured).
struct MmaTileInfo {
  std::string_view name;
  bool tf32;                      ///< of fp32; else of half precision
  int rows, columns;              ///< of C
  int warps_rows, warps_columns;  ///< of a block
  int stages;                     ///< most k-blocks in flight
  int beside;                     ///< CTAs per SM that registers allow
  double start, block;            ///< an SM's first tile: before and after its k-blocks, and per k-block
  double more, more_block;        ///< each further tile
  constexpr int threads() const { return 32 * warps_rows * warps_columns; }
};
inline constexpr int kMmaRowBytes = 128;  ///< of a line of a k-block: 64 k, or 32 of fp32
inline constexpr std::array<MmaTileInfo, 6> kMmaTiles{{
    {"mma_16x64", false, 16, 64, 1, 4, 6, 4, 1.30, 0.199, 0.333, 0.124},  // few rows
    {"mma_32x32", false, 32, 32, 2, 2, 6, 4, 1.33, 0.179, 0.419, 0.147},
    {"mma_64x64", false, 64, 64, 2, 2, 6, 4, 1.41, 0.384, 0.50, 0.242},
    {"mma_tf32_64x64", true, 64, 64, 2, 2, 4, 3, 1.36, 0.363, 0.368, 0.255},   // few rows or columns, one wave
    {"mma_tf32_128x64", true, 128, 64, 4, 1, 4, 2, 1.78, 0.49, 1.2, 0.367},    // short K, batches
    {"mma_tf32_64x128", true, 64, 128, 2, 4, 4, 2, 1.98, 0.485, 1.13, 0.415},  // a large B
}};
constexpr const MmaTileInfo& info(MmaTile t) { return kMmaTiles[static_cast<std::size_t>(t)]; }

struct MmaPlan {
  MmaTile tile;
  int bytes_a, bytes_b;        ///< multiples of which an operand's rows start and end at: 16, 8 (fp32), 4 or 2
  std::int64_t splits;         ///< of K (fp32), a CTA each: split_k.cuh
  std::int64_t split_blocks;   ///< k-blocks of a split
  std::int64_t partial_bytes;  ///< sums of splits
  std::int64_t counter_bytes;  ///< zeros before and after the launch
  double seconds;              ///< predicted
  bool is_unaligned() const { return bytes_a < 16 || bytes_b < 16; }
};

/// Nothing if the kernel cannot do the problem. `forced`: a tile's name, or "mma" for any; of fp32 also the number of splits
/// ("mma_tf32_64x64/4").
std::optional<MmaPlan> plan_mma(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

struct WgmmaPlan;

/// Half precision: the bits are those of wgmma/kernel.cuh, so the choice between the two may look at M.
bool mma_pays(const MmaPlan& mma, const WgmmaPlan& tensor);

}  // namespace xgemm::matmul
