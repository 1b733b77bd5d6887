// The tile of latent.cuh, its plan and its launch.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <optional>

#include "attention/tiles/arguments.h"
#include "attention/tiles/plan.h"

namespace xgemm::attention {

inline constexpr int kLatentParts = 3, kLatentThreads = 3 * 128;
/// `keys`: of a step, half of them in each of two slots.
inline constexpr Tile kLatentTile{.head_size = 576,
                                  .value_size = 512,
                                  .consumers = 1,
                                  .keys = 128,
                                  .query_slots = 1,
                                  .stages = 1,
                                  .serving = Serving::unmasked};
inline constexpr std::array kLatentTiles = {kLatentTile};
/// Queries and two slots; a barrier for the queries, two for each part; maxima.
inline constexpr int kLatentBytes = 3 * 9 * 64 * Tile::kBlockBytes + 8 * (1 + 4 * kLatentParts) + 4 * 2 * 64;
static_assert(kLatentBytes <= Tile::kSharedBytes);
enum LatentBarrier { kPairBarrier = 1 };

/// Nothing if the kernel does not take the problem; `problem` as plan_tiles() has it, whatever its table.
std::optional<Plan> plan_latent(Problem problem);

void launch_latent_half(const TileArguments& arguments, int ctas, cudaStream_t stream);
void launch_latent_bf16(const TileArguments& arguments, int ctas, cudaStream_t stream);

}  // namespace xgemm::attention
