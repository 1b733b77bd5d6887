#include "matmul/fp64_mma/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/roofline.h"

namespace xgemm::matmul {
namespace {

constexpr double kLaunch = 1.16;  // microseconds: everything but the tiles

}  // namespace

std::optional<Fp64Plan> plan_fp64(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_fp64(p, gpu) || leaves_out_family(forced, "fp64")) return {};
  const Machine machine = machine_of(gpu);
  const std::int64_t blocks = ceil_div(p.k, kFp64TileK), segment = fp64_segment(p.n, p.k),
                     segments = std::max<std::int64_t>(1, ceil_div(blocks, segment)), elements = p.m * p.n * p.batches;
  const auto wanted = forced_splits(forced);
  std::optional<Fp64Plan> best;
  for (std::size_t i = 0; i < kFp64Tiles.size(); ++i) {
    const TileInfo& t = kFp64Tiles[i];
    const std::int64_t rows = ceil_div(p.m, t.m), columns = ceil_div(p.n, t.n);
    if (leaves_out_tile(forced, t.name) || rows > kMostLines / columns / p.batches / segments) continue;
    for (std::int64_t each = segments, tiles = rows * columns * p.batches;; each = ceil_div(each, 2)) {
      const std::int64_t splits = ceil_div(segments, each), of_cta = std::min(blocks, each * segment);
      double us = kLaunch + longest_us(compute_us(t, tiles * splits, of_cta * kFp64TileK, gpu.sm_count), memory_us(p, machine),
                                       l2_us(p, t, tiles, machine.l2_async_bytes));
      if (splits > 1) us += kNextLaunch + 1e6 * 16 * static_cast<double>(elements * segments) / machine.read_bytes;
      if ((!wanted || splits == *wanted) && (!best || 1e-6 * us < best->seconds))
        best = {.tile = static_cast<Fp64Tile>(i),
                .blocks = blocks,
                .segment = segment,
                .split_blocks = of_cta,
                .splits = splits,
                .workspace_bytes = splits > 1 ? 8 * segments * elements : 0,
                .seconds = 1e-6 * us};
      if (each == 1) break;
    }
  }
  return best;
}

}  // namespace xgemm::matmul
