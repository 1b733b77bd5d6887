#include "matmul/simt/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

constexpr double kLaunch = 3.3e-6;             // seconds (measured, docs/log/matmul.md)
constexpr double kBlock = 8e-6 / (128 * 128);  // an output element's share of a block's start and end
constexpr double kTail = 0.5;                  // of a wave: cost of a partial last wave
constexpr int kFmaPerCycle = 128;              // per SM

struct Estimate {
  double seconds;
  std::int64_t splits;
};

Estimate estimate(const Problem& p, const SimtTileInfo& tile, std::int64_t chunk, std::int64_t chunks, const Machine& machine) {
  const Tile& t = tile.tile;
  const double tiles = static_cast<double>(ceil_div(p.m, t.bm) * ceil_div(p.n, t.bn)) * static_cast<double>(p.batches);
  const double slots = static_cast<double>(machine.sm_count) * t.blocks_per_sm;
  // fp64 runs at half the fp32 rate.
  const double rate = tile.rate * (kFmaPerCycle * machine.hertz_cuda_cores) * (p.dtype == DType::f64 ? 0.5 : 1.0);
  const double chunk_flop = static_cast<double>(t.bm) * t.bn * static_cast<double>(std::min(chunk, p.k));
  const double bytes = static_cast<double>(size_of(p.dtype)) * static_cast<double>(p.n) * static_cast<double>(p.k) *
                       (p.b.batch_stride[0] ? static_cast<double>(p.batches) : 1.0);
  Estimate best{1e30, 1};
  for (std::int64_t splits = 1; splits <= chunks; splits *= 2) {
    const std::int64_t per_block = ceil_div(chunks, splits);
    const double blocks = tiles * static_cast<double>(ceil_div(chunks, per_block));
    const double waves = blocks <= slots ? 1.0 : blocks / slots;  // many waves overlap: a partial last one costs its share
    const double tail = blocks > slots ? kTail : 0.0;
    // A block with fewer co-resident blocks than possible runs faster, up to twice.
    const double beside = std::clamp(blocks / machine.sm_count, t.blocks_per_sm / 2.0, static_cast<double>(t.blocks_per_sm));
    double seconds = (waves + tail) * (static_cast<double>(per_block) * chunk_flop * beside / rate + kBlock * t.bm * t.bn);
    seconds = std::max(seconds, bytes / machine.read_bytes / std::min(1.0, blocks / slots));
    if (per_block < chunks)
      seconds += machine.next_launch + 2.0 * static_cast<double>(p.batches * p.m * p.n * chunks) * 4 / machine.read_bytes;
    if (seconds < best.seconds) best = {seconds, ceil_div(chunks, per_block)};
    if (splits < chunks && splits * 2 > chunks) splits = chunks / 2 + chunks % 2;  // so that `chunks` itself is tried
  }
  return best;
}

bool serves(const Problem& p, const Tile& t, const DeviceProperties& gpu) {
  if (p.dtype == DType::f64 && t.tm() * t.tn() > 32) return false;  // its sums do not fit in registers
  return static_cast<std::size_t>(t.shared_bytes(accumulator_bytes(p.dtype))) <= gpu.smem_per_block;
}

}  // namespace

std::int64_t chunk_length(std::int64_t n, std::int64_t k) {
  const std::int64_t wanted = n <= 512 ? 64 : n <= 1024 ? 128 : k <= 512 ? 512 : 256;
  if (k <= wanted) return std::max<std::int64_t>(k, 1);
  return std::max<std::int64_t>(wanted, ceil_div(ceil_div(k, 32), 32) * 32);
}

std::int64_t chunk_count(std::int64_t n, std::int64_t k) { return std::max<std::int64_t>(1, ceil_div(k, chunk_length(n, k))); }

SimtPlan plan_simt(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const bool any = forced.empty() || forced == "simt";
  const std::int64_t chunk = chunk_length(p.n, p.k), chunks = chunk_count(p.n, p.k);
  SimtPlan plan{
      SimtTile::t64x64, chunk, chunks, 1, 0, has_vectors(p, lines_of_a(p), 4) && has_vectors(p, lines_of_b(p), 4), 1e30};
  for (std::size_t i = 0; i < kSimtTiles.size(); ++i) {
    const SimtTileInfo& tile = kSimtTiles[i];
    if (!serves(p, tile.tile, gpu) || (!any && forced != tile.name)) continue;
    const Estimate e = estimate(p, tile, chunk, chunks, machine_of(gpu));
    if (e.seconds < plan.seconds) plan.seconds = e.seconds, plan.tile = static_cast<SimtTile>(i), plan.splits = e.splits;
  }
  plan.seconds += kLaunch;
  if (plan.splits > 1) plan.workspace_bytes = p.batches * p.m * p.n * chunks * accumulator_bytes(p.dtype);
  return plan;
}

}  // namespace xgemm::matmul
