#include "matmul/simt/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/roofline.h"
#include "matmul/simt/tile.h"

namespace xgemm::matmul {
namespace {

constexpr double kLaunch = 3.42;  // microseconds
constexpr double kSingles = 2;    // time with single elements, relative to quads

bool serves(const Problem& p, SimtTile tile, const DeviceProperties& gpu) {
  const SimtShape t = shape(tile);
  if (p.dtype == DType::f64 && t.tm() * t.tn() > 32) return false;  // its sums do not fit in registers
  return static_cast<std::size_t>(t.shared_bytes(accumulator_bytes(p.dtype))) <= gpu.smem_per_block;
}

}  // namespace

SimtPlan plan_simt(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const bool any = forced.empty() || forced == "simt";
  const Machine machine = machine_of(gpu);
  const std::int64_t chunk = chunk_length(p.n, p.k), chunks = chunk_count(p.n, p.k);
  SimtPlan plan{
      SimtTile::t64x64, chunk, chunks, 1, 0, has_vectors(p, lines_of_a(p), 4) && has_vectors(p, lines_of_b(p), 4), 1e30};
  for (std::size_t i = 0; i < kSimtTiles.size(); ++i) {
    const auto tile = static_cast<SimtTile>(i);
    TileInfo t = info(tile);
    if (!serves(p, tile, gpu) || (!any && forced != t.name)) continue;
    if (p.dtype == DType::f64) t.block *= 2, t.more *= 2;
    const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches;
    for (std::int64_t each = chunks;; each = ceil_div(each, 2)) {  // chunks of a block
      const std::int64_t splits = ceil_div(chunks, each);
      double seconds = 1e-6 * (kLaunch + longest_us(compute_us(t, tiles * splits, std::min(p.k, each * chunk), gpu.sm_count),
                                                    memory_us(p, machine)));
      if (splits > 1)
        seconds += 1e-6 * kNextLaunch + 2.0 * static_cast<double>(p.batches * p.m * p.n * chunks) * 4 / machine.read_bytes;
      if (seconds < plan.seconds) plan.seconds = seconds, plan.tile = tile, plan.splits = splits;
      if (each == 1) break;
    }
  }
  if (!plan.vector && plan.tile != SimtTile::t16x128) plan.seconds *= kSingles;
  if (plan.splits > 1) plan.workspace_bytes = p.batches * p.m * p.n * chunks * accumulator_bytes(p.dtype);
  return plan;
}

}  // namespace xgemm::matmul
