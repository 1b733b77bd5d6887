// The tiles of wide.cu, their plan and their launch.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <optional>

#include "attention/tiles/arguments.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

inline constexpr int kWideThreads = 3 * 128, kWideBlocks = 9, kWideSlotKeys = 64,
                     kWideBlockBytes = kWideSlotKeys * Tile::kBlockBytes;
/// `keys`: of a step.
constexpr Tile wide_tile(int head_size, int keys) {
  return {.head_size = head_size,
          .value_size = 512,
          .consumers = 1,
          .keys = keys,
          .query_slots = 1,
          .stages = 1,
          .serving = Serving::unmasked,
          .sequences = true};
}
/// With values of their own, and with values that are the keys' first columns.
inline constexpr std::array kWideTiles = {wide_tile(512, 64), wide_tile(576, 128)};
/// Queries and two slots; a barrier for the queries, two for each part; maxima.
inline constexpr int kWideBytes = 3 * kWideBlocks * kWideBlockBytes + 8 * (1 + 2 * 2 * 3) + 4 * 2 * 64;
static_assert(kWideBytes <= Tile::kSharedBytes);
enum { kWideBarrier = 1 };

/// Nothing if the kernel does not take the problem; `problem` as plan_tiles() has it, whatever its table.
inline std::optional<Plan> plan_wide(Problem problem, bool latent) {
  problem.table = {&kWideTiles[latent], 1}, problem.portable = true, problem.latent = latent;
  return plan_tiles(problem);
}

/// Keys of a box that TMA loads: a slot's, or a power of two of them that divides a page.
__host__ __device__ inline int wide_box_rows(const Sequences& s) {
  const int page = static_cast<int>(s.page_rows.divisor), power = page & -page;
  return s.table == nullptr || power > kWideSlotKeys ? kWideSlotKeys : power;
}

void launch_wide(DType dtype, bool latent, const TileArguments& arguments, int ctas, cudaStream_t stream);
void launch_wide(DType dtype, bool latent, const WithSequences<TileArguments>& arguments, int ctas, cudaStream_t stream);

}  // namespace xgemm::attention
