#include "matmul/bf16x3/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/forced.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// Seconds; measured, docs/log/matmul.md, "3652 times of 744 products".
constexpr double kLaunch = 3.07e-6, kShare = 1.5e-6, kRead = 0.6e-6;  // kRead: a half warp's up to four pieces
// Time with element-wise loads of B, relative to TMA; of A, relative to quads.
constexpr double kWithoutTma = 1.63, kWithoutQuads = 1.1;
constexpr double kFinerPays = 0.99;  // a finer division shares more tiles: it must take less than this share of the time

/// Least k of "highest": for a smaller k SGEMM rounds so seldom that truncation would show.
constexpr std::int64_t kLeastDepth = 64;

}  // namespace

std::optional<Bf16x3Plan> plan_bf16x3(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_fp32_on_tensor_cores(p, gpu)) return {};
  if (leaves_out_family(forced, "bf16x3")) return {};
  if (forced.empty() && p.precision == Precision::highest && p.k < kLeastDepth) return {};
  const Machine machine = machine_of(gpu);
  Bf16x3Plan plan{};
  plan.b = tensor_operand(p, lines_of_b(p), 4);
  plan.a_vectors = has_vectors(p, lines_of_a(p), 4);
  plan.blocks = ceil_div(p.k, kBf16x3Block);
  plan.seconds = 1e30;
  const double bytes =
      operand_bytes(p, lines_of_b(p)) + operand_bytes(p, lines_of_a(p)) + 4.0 * static_cast<double>(p.m * p.n * p.batches);
  for (std::size_t i = 0; i < kBf16x3Tiles.size(); ++i) {
    const Bf16x3TileInfo& tile = kBf16x3Tiles[i];
    if (leaves_out_tile(forced, tile.name)) continue;
    const std::int64_t tiles = ceil_div(p.m, tile.rows) * ceil_div(p.n, kBf16x3Columns) * p.batches;
    if (tiles > kMostLines / plan.blocks) continue;
    const double block = tile.block;
    for (std::int64_t granule = plan.blocks;; granule = ceil_div(granule, 2)) {
      const std::int64_t units = ceil_div(plan.blocks, granule), ctas = std::min<std::int64_t>(gpu.sm_count, tiles * units);
      const std::int64_t most = ceil_div(tiles * units, ctas);  // units of the busiest CTA
      const bool shares = units > 1 && (tiles * units) % (ctas * units) != 0;
      const double cycles = static_cast<double>(most * granule) * block +
                            static_cast<double>(ceil_div(most, units) + (shares ? 1 : 0)) * tile.fixed;
      const bool even = tiles * units == ctas * most && units % most == 0;          // no CTA has parts of two tiles
      const std::int64_t pieces = even ? units / most : ceil_div(ctas, tiles) + 1;  // of a shared tile
      const std::int64_t reads = pieces > kBf16x3FewPieces ? ceil_div(tile.rows, pieces) * ceil_div(ceil_div(pieces, 8), 4) + 2
                                                           : tile.rows / 8 * ceil_div(pieces, 4);
      const double sharing = kShare + static_cast<double>(reads) * kRead;
      const double seconds =
          std::max(cycles / machine.hertz_tensor, bytes / machine.bf16x3_bytes) + kLaunch + (shares ? sharing : 0);
      if (seconds < (i == static_cast<std::size_t>(plan.tile) ? kFinerPays : 1) * plan.seconds) {
        plan.seconds = seconds;
        plan.tile = static_cast<Bf16x3Tile>(i);
        plan.tiles = tiles, plan.granule = granule, plan.units = units, plan.ctas = ctas;
        plan.partial_bytes = shares ? 2 * ctas * tile.rows * kBf16x3Columns * 4 : 0;
        plan.counter_bytes = shares ? ctas * 16 : 0;
      }
      if (granule == 1 || plan.blocks <= kBf16x3Short) break;
    }
  }
  if (plan.seconds >= 1e30) return {};
  // Here, so that tiles, and with them bits, do not depend on alignment.
  plan.seconds *= !plan.b_tma() ? kWithoutTma : !plan.a_vectors ? kWithoutQuads : 1;
  return plan;
}

std::optional<Bf16x3Plan> plan_bf16x3_fallback(const Problem& p, int sm_count) {
  constexpr Bf16x3Tile kTile = Bf16x3Tile::t64x128;
  Bf16x3Plan plan{};
  plan.tile = kTile, plan.b = tensor_operand(p, lines_of_b(p), 4), plan.a_vectors = has_vectors(p, lines_of_a(p), 4);
  plan.tiles = ceil_div(p.m, info(kTile).rows) * ceil_div(p.n, kBf16x3Columns) * p.batches;
  if (p.batch_invariant || p.gated || plan.tiles >= std::int64_t{1} << 30) return {};
  plan.blocks = plan.granule = ceil_div(p.k, kBf16x3Block), plan.units = 1;
  plan.ctas = std::min<std::int64_t>(plan.tiles, sm_count);
  return plan;
}

}  // namespace xgemm::matmul
