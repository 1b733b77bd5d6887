#include "matmul/fp64_mma/plan.h"

#include <algorithm>
#include <cmath>

#include "device/integer.h"
#include "matmul/forced.h"
#include "matmul/gemv/plan.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// Microseconds; measured, docs/log/matmul.md, "fp64: warps that only copy".
constexpr double kLaunch = 0.3, kFinish = 1.4;
constexpr double kHidden = 0.28;  // share of all but the longest of products, memory and L2 that is not hidden

constexpr std::int64_t kShortest = 16;  // k-blocks of a segment, at least: adding a segment costs as much as about one
// The same for up to kFewSegments by up to kFewColumns: small products whose chain of k-blocks takes longest.
constexpr std::int64_t kShortestOfFew = 8, kFewSegments = 4, kFewColumns = 1024;
constexpr std::int64_t kMostSegments = 128;
// Long K is cut for any N: then a CTA's total costs little, and few rows of tiles still fill a GPU.
constexpr std::int64_t kShortestOfLong = 96, kMostOfLong = 4;

/// Time of `ctas` CTAs with `blocks` k-blocks each, `per_sm` at a time on an SM.
double products_us(const Fp64TileInfo& tile, double ctas, double blocks, double per_sm, int sm_count) {
  const auto round = [&](double resident) { return blocks * std::max(tile.alone, resident * tile.busy) + tile.fixed; };
  const double full = std::floor(ctas / (sm_count * per_sm)), left = std::ceil((ctas - full * sm_count * per_sm) / sm_count);
  return full * round(per_sm) + (left > 0 ? round(left) : 0);
}

}  // namespace

// Enough segments that 64 rows of C fill a GPU: 128 CTAs of 64 columns and a segment each.
std::int64_t fp64_segment(std::int64_t n, std::int64_t k) {
  const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(k, kFp64TileK));
  const std::int64_t wanted = std::clamp<std::int64_t>(128 / ceil_div(n, 64), 1, kMostSegments);
  const std::int64_t few = n <= kFewColumns ? std::min(kFewSegments, blocks / kShortestOfFew) : 1;
  const std::int64_t of_long = std::clamp<std::int64_t>(blocks / kShortestOfLong, 1, kMostOfLong);
  return ceil_div(blocks, std::max(of_long, std::min(wanted, std::max(few, blocks / kShortest))));
}

std::optional<Fp64Plan> plan_fp64(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (gpu.major != 9 || p.dtype != DType::f64) return {};
  if (p.m < 1 || p.n <= kGemvLines || p.m > kMostLines || p.n > kMostLines || p.k > kMostLines) return {};
  if (leaves_out_family(forced, "fp64")) return {};
  Fp64Plan best{.tile = Fp64Tile::t64x64,
                .blocks = ceil_div(p.k, kFp64TileK),
                .segment = fp64_segment(p.n, p.k),
                .split_blocks = 0,
                .splits = 1,
                .workspace_bytes = 0,
                .seconds = 0};
  double best_us = 1e30;
  const Machine machine = machine_of(gpu);
  const std::int64_t segments = std::max<std::int64_t>(1, ceil_div(best.blocks, best.segment));
  const double elements = static_cast<double>(p.m * p.n) * static_cast<double>(p.batches);
  const double memory =
      (operand_bytes(p, lines_of_a(p)) + operand_bytes(p, lines_of_b(p)) + 8 * elements) / (1e-6 * machine.read_bytes);
  const auto wanted = forced_splits(forced);
  for (std::size_t i = 0; i < kFp64Tiles.size(); ++i) {
    const Fp64TileInfo& tile = kFp64Tiles[i];
    if (leaves_out_tile(without_splits(forced), tile.name)) continue;
    const std::int64_t rows = ceil_div(p.m, tile.rows), columns = ceil_div(p.n, tile.columns);
    if (rows > kMostLines / columns / p.batches / segments) continue;
    const auto tiles = static_cast<double>(rows * columns * p.batches);
    for (std::int64_t segments_each = segments;; segments_each = ceil_div(segments_each, 2)) {
      const std::int64_t splits = ceil_div(segments, segments_each);
      const bool totals = splits == 1 && segments > 1;
      if (!wanted || splits == *wanted) {
        const std::int64_t split_blocks = std::min(best.blocks, segments_each * best.segment);
        const auto room = static_cast<double>(gpu.smem_per_sm / static_cast<std::size_t>(tile.shared_bytes(totals) + 1024));
        const double ctas = tiles * static_cast<double>(splits);
        const double products =
            products_us(tile, ctas, static_cast<double>(split_blocks), std::min<double>(room, tile.per_sm), gpu.sm_count);
        const double l2 = 8 * (tiles * static_cast<double>(tile.rows + tile.columns) * static_cast<double>(p.k) + elements) /
                          (1e-6 * machine.l2_bytes_fp64);
        const double longest = std::max({products, memory, l2});
        double us = kLaunch + longest + kHidden * (products + memory + l2 - longest);
        if (splits > 1) us += kFinish + 16 * elements * static_cast<double>(segments) / (1e-6 * machine.read_bytes);
        if (us < best_us) {
          best_us = us, best.tile = static_cast<Fp64Tile>(i), best.split_blocks = split_blocks, best.splits = splits;
          best.workspace_bytes = splits > 1 ? 8 * segments * p.batches * p.m * p.n : 0;
        }
      }
      if (segments_each == 1) break;
    }
  }
  if (best_us >= 1e30) return {};
  best.seconds = 1e-6 * best_us;
  return best;
}

}  // namespace xgemm::matmul
