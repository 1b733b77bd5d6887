#include "matmul/wgmma/tile_plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// The cost model beside machine.h and kWgmmaTiles, in cycles, fitted to runs of all tiles (docs/log/matmul.md, "Half precision:
// shapes that cuBLAS was ahead in", "Rows that straddle cache lines", "Few rows, half precision: waves").
constexpr double kMergeCycles = 1200, kCrowdCycles = 900, kAddCycles = 140, kMeetCycles = 5300;
constexpr double kMergeCyclesFp32 = 5000, kAddCyclesFp32 = 600;
// Bytes per cycle: from memory; of one SM's partial sums; from L2, all SMs together.
constexpr double kMemoryRate = 2640, kPartialRate = 14, kL2Rate = 8200, kL2RateSwapAb = 9000;
// Boxes whose rows straddle two cache lines: cycles per line of one SM; bytes per cycle of all SMs (kSame: with up to 128 rows
// of A, which all SMs read at once).
constexpr double kLineCycles = 1.7, kLinesRate = 8800, kSameLinesRate = 5500;

// Half precision, cycles of a tile: storing rows of C that begin unaligned, which TMA cannot; following another tile.
constexpr double kUnalignedStore = 700, kUnalignedNarrowStore = 3500, kNextTile = 600;

// wgmma_64x64 with a single row of tiles, cycles: per k-block; fixed.
constexpr double kOneRowBlock = 150, kOneRowFixed = 400;

constexpr double kPairCycles = 1200;  // starting a cluster
constexpr double kRowOutside = 4;     // per k-block and row of A's box that is out of bounds, where TMA is slower

/// `sums`: splits that a CTA adds in registers or with its cluster.
bool serves(int parts, bool b_k_major, const Problem& p, WgmmaTile t, std::int64_t sums) {
  if (t == WgmmaTile::t128x256 && parts == 2) return false;  // no registers for promotion
  if (info(t).n > 128 && sums > 1) return false;             // nor for partial sums
  if (info(t).m == 64 && (parts == 1 || (p.m > 64 && (parts != 0 || p.gated)))) return false;
  if (info(t).block_fp32 == 0 && (parts != 0 || p.gated)) return false;
  // Gated: few instantiations. Its outputs are wide (an MLP's), so that split-K would gain nothing.
  if (p.gated && (sums > 1 || t == WgmmaTile::t128x64)) return false;
  if (p.gated && parts != 0 && t != WgmmaTile::t128x128) return false;
  if (t == WgmmaTile::t64x256) return b_k_major;
  if (info(t).swap_ab) return b_k_major && sums == 1 && !p.c.data && !p.residual.data;
  return info(t).n % 64 == 0 || b_k_major;  // a row of 32 columns along n is too short for the 128-byte swizzle
}

/// Lines of B per tile with swap_ab: those that minimise waves times a tile's time.
std::int64_t swap_ab_lines(const Problem& p, WgmmaTile t, int sm_count) {
  const WgmmaTileInfo& tile = info(t);
  const std::int64_t rows = ceil_div(p.m, tile.m) * p.batches, most = tile.n;
  const std::int64_t fewest = ceil_div(p.n, most), tiles_n = std::min(fewest + 64, ceil_div(p.n, std::int64_t{80}));
  std::int64_t best = most;
  double least = 1e30;
  for (std::int64_t across = fewest; across <= std::max(fewest, tiles_n); ++across) {
    const std::int64_t lines = std::min(most, round_up(ceil_div(p.n, across), 16));
    const double block = tile.block - tile.line * static_cast<double>(most - lines),
                 time = static_cast<double>(ceil_div(rows * ceil_div(p.n, lines), sm_count)) *
                        (static_cast<double>(ceil_div(p.k, kWgmmaTileK)) * block + tile.fixed);
    if (time < least) least = time, best = lines;
  }
  return best;
}

/// Columns of C per tile. Few rows: as many as keep all SMs equally busy. t64x256: as many as fill all SMs once.
std::int64_t columns_of(int parts, bool b_k_major, const Problem& p, WgmmaTile t, std::int64_t splits, int sm_count) {
  const std::int64_t most = columns(p, t);
  if (info(t).swap_ab) return swap_ab_lines(p, t, sm_count);
  if (t == WgmmaTile::t64x256 && splits == 1 && p.batches == 1) {
    const std::int64_t rows = ceil_div(p.m, info(t).m), across = std::max<std::int64_t>(1, sm_count / rows);
    return std::min(most, round_up(ceil_div(p.n, across), 64));  // whole boxes of C
  }
  if (info(t).m > 64 || info(t).n <= 32 || p.m > 64 || parts != 0 || !b_k_major || p.gated || p.batches > 1) return most;
  if (splits > 1) {  // clusters on half of the SMs, or three quarters; more clusters reduce more slowly
    constexpr std::int64_t kLeast = 40;
    for (const int busy : {sm_count / 2, sm_count * 3 / 4}) {
      const std::int64_t wanted = round_up(ceil_div(p.n, clusters_at_once(splits, busy)), 8);
      if (wanted <= most) return std::max(wanted, kLeast);
    }
    return most;
  }
  const std::int64_t tiles = round_up(ceil_div(p.n, most), sm_count);
  constexpr std::int64_t kStays = 1 << 24;  // elements of a B that stays in L2; in several waves, fewer tiles cost less
  if (tiles > sm_count && p.n * p.k <= kStays) return most;
  return std::min(most, round_up(ceil_div(p.n, tiles), 8));
}

}  // namespace

std::int64_t split_blocks(std::int64_t k, std::int64_t splits) {
  return round_up(ceil_div(ceil_div(k, kWgmmaTileK), splits), kSplitMultiple);
}

WgmmaTileChoice choose_tile(int parts, bool b_is_k_major, const Problem& problem, std::int64_t splits, int sm_count,
                            std::string_view forced, double lines_of_a, double lines_of_b) {
  const auto k_major_a = [](const Problem& p) { return p.a.row_stride != 1 || p.a.col_stride == 1; };  // as in `place`, plan.cpp
  const Problem swapped = swap_ab(problem);
  const std::int64_t products = parts == 2 ? 3 : 1;
  const bool one = forced.find('_') != forced.npos;  // a tile is named
  WgmmaTileChoice best{.tile = problem.gated ? WgmmaTile::t128x128 : WgmmaTile::t128x64,
                       .splits = std::max<std::int64_t>(1, splits),
                       .cluster = 1,
                       .memory_splits = 1,
                       .columns = 64};
  for (std::size_t i = 0; i < kWgmmaTiles.size(); ++i) {
    const WgmmaTile t = static_cast<WgmmaTile>(i);
    const WgmmaTileInfo& tile = info(t);
    const Problem& p = tile.swap_ab ? swapped : problem;
    const double lines_a = tile.swap_ab ? lines_of_b : lines_of_a, lines_b = tile.swap_ab ? lines_of_a : lines_of_b;
    const bool b_k_major = tile.swap_ab ? k_major_a(problem) : b_is_k_major;
    // Other M, batches and unaligned rows of C are not measured, or other tiles are faster.
    const bool between =
        problem.m > 128 && problem.m <= (tile.m == 64 ? 640 : 1280) && problem.n % 8 == 0 && problem.batches == 1;
    if (tile.swap_ab && (problem.gated || parts != 0 || (!one && !between))) continue;
    if (one ? forced != tile.name : parts == 0 && p.m <= 64 && tile.m > 64) continue;
    for (std::int64_t cut = splits ? splits : 1; cut <= (splits ? splits : kMaxCluster); cut *= 2) {
      if ((cut - 1) * split_blocks(p.k, cut) * kWgmmaTileK >= p.k) continue;
      const std::int64_t wide = columns_of(parts, b_k_major, p, t, cut, sm_count);
      const std::int64_t tiles = ceil_div(p.m, tile.m) * ceil_div(p.n, wide) * p.batches;
      const bool half = parts == 0 && !p.gated;
      // Few rows are limited by reading B, which narrower tiles divide more evenly. With B in memory all tiles take the same
      // time; with B in L2 a second wave costs more than its narrow tiles save. More rows in several waves: wider tiles read
      // less.
      const bool few = p.m <= 64, again = tiles > sm_count;
      if (!one && tile.m == 64 && tile.n > 64 && (again || (few && (wide <= 64 || tile.n > 96)))) continue;
      if (!one && few && tile.n <= 32 && again) continue;
      // Each row of tiles reads all of B: it pays with few rows of tiles, or if half of the last 128-row tile were redundant.
      if (!one && t == WgmmaTile::t64x256 && ceil_div(p.m, tile.m) % 2 == 0 && p.m > 128) continue;
      const bool one_row = half && few && t == WgmmaTile::t64x64;
      const double fixed = one_row ? kOneRowFixed : half ? tile.fixed : parts == 2 ? tile.fixed_highest : tile.fixed_high;
      const std::int64_t tiles_m = ceil_div(p.m, tile.m), tiles_n = ceil_div(p.n, wide);
      const bool straddles = lines_a > 1 || lines_b > 1, share_a = shares_a(tile.m, tile.n);
      // Measured: up to 1.4 times slower, where two SMs share a path to L2 and rows take more requests.
      if (!one && t == WgmmaTile::t64x16 && (!k_major_a(p) || (straddles && 2 * tiles > sm_count))) continue;
      const std::int64_t pairs = p.batches * (share_a ? tiles_m * ceil_div(tiles_n, 2) : ceil_div(tiles_m, 2) * tiles_n);
      constexpr std::int64_t kRowsToShare = 16;  // of A: sharing fewer saves nothing
      // Multicast: each CTA of a pair loads half of an operand for both. Two rows of tiles in one wave with K unsplit and long
      // enough for the cluster's start always use it; else it pays by saving L2 requests.
      const bool can_pair =
                     half && sm_count > 1 && (share_a ? tiles_n > 1 && p.m >= kRowsToShare : tiles_m > 1 && wide % 16 == 0),
                 always = can_pair && tile.m == 64 && tile.n > 32 && !tile.swap_ab && tiles_m == 2 && tiles <= sm_count &&
                          p.batches == 1 && cut == 1 && p.k >= 2048;
      const bool overlaps = k_major_a(p);
      const double outside =
          half && p.m > tile.m && !overlaps ? kRowOutside * static_cast<double>(round_up(p.m, tile.m) - p.m) : 0;
      const auto block_of = [&](bool pair, std::int64_t ctas) {  // `ctas`: not for pairs
        if (!half) return tile.block_fp32;
        double block = (one_row ? kOneRowBlock : tile.block) - tile.line * static_cast<double>(tile.n - wide);
        const double rows = static_cast<double>(std::min<std::int64_t>(p.m, tile.m)),
                     from_l2 = (lines_a * rows / (pair && share_a ? 2 : 1) +
                                lines_b * static_cast<double>(pair && !share_a ? wide / 2 : wide)) *
                               128;
        const auto all = static_cast<double>(pair ? 2 * pairs : ctas);
        const double lines_rate = p.m > 128 ? kLinesRate : kSameLinesRate;
        double busy = std::min(all, static_cast<double>(sm_count));
        if (straddles) {  // limited by L2 requests: of all SMs, and of one SM
          busy = all / static_cast<double>(pair ? ceil_div(pairs, sm_count / 2) : ceil_div(ctas, sm_count));
          block = std::max(block, kLineCycles * from_l2 / 128);
        }
        // Tiles of the same rows or columns read them from memory once.
        const double from_memory =
            128 * (rows / static_cast<double>(tiles_n) + static_cast<double>(wide) / static_cast<double>(tiles_m));
        return std::max({block,
                         from_l2 * busy /
                             (straddles      ? lines_rate
                              : tile.swap_ab ? kL2RateSwapAb
                                             : kL2Rate),
                         from_memory * std::min(all, static_cast<double>(sm_count)) / kMemoryRate});
      };
      const auto consider = [&](std::int64_t cluster, std::int64_t memory_splits, bool pair = false) {
        if (cluster > sm_count || !serves(parts, b_k_major, p, t, memory_splits > 1 ? 1 : cut)) return;
        const std::int64_t blocks = cluster == 1 && memory_splits == 1 ? ceil_div(p.k, kWgmmaTileK) : split_blocks(p.k, cut);
        const double bytes = static_cast<double>(std::min<std::int64_t>(p.m, tile.m) * tile.n * 4);
        const bool narrow = tile.n <= 32 && p.m > 8 && cluster == 1 && memory_splits == 1;
        const double store = !half || problem.n % 8 == 0 ? 0 : narrow ? kUnalignedNarrowStore : kUnalignedStore;
        if (half && std::max(cluster, memory_splits) > 1 && tile.m == 64 && tile.n > 64)
          return;  // measured slower than predicted
        if (cluster > 1 && (tile.m % cluster != 0 || (half && tile.n % 64 == 32 && tile.n > 64))) return;
        // One CTA per two SMs, which share a path to L2, is faster.
        const double crowd = tiles > clusters_at_once(cluster, sm_count / 2) ? kCrowdCycles : 0;
        const double extra = memory_splits > 1 ? bytes / kPartialRate
                             : cluster > 1     ? (half ? kMergeCycles + crowd + bytes / kPartialRate : kMergeCyclesFp32)
                                               : static_cast<double>(cut - 1) * (half ? kAddCycles : kAddCyclesFp32);
        const std::int64_t waves =
            pair ? ceil_div(pairs, sm_count / 2) : ceil_div(tiles * memory_splits, clusters_at_once(cluster, sm_count));
        const double cycles = static_cast<double>(waves) *
                                  (static_cast<double>(blocks * products) * block_of(pair, tiles * cluster * memory_splits) +
                                   fixed + extra + store) +
                              (half ? static_cast<double>(waves - 1) * kNextTile : 0) + static_cast<double>(blocks) * outside +
                              (memory_splits > 1 ? kMeetCycles + bytes / kPartialRate : 0) + (pair && !always ? kPairCycles : 0);
        if (cycles < best.cycles) best = {t, cut, cluster, memory_splits, wide, pair, cycles};
      };
      if (splits || cut == 1) {
        if (!always) consider(1, 1);
        // 300x4104x4104 in three waves of 64x64: 58 us in pairs, 41 in 128x128.
        if (always || (can_pair && straddles && (tile.m == 128 || tiles <= sm_count))) consider(1, 1, true);
      }
      if (cut > 1 && cut <= kMaxCluster) consider(cut, 1);
      if (cut > 1 && parts == 0 && !p.gated && !tile.swap_ab && tiles * cut <= sm_count)
        consider(1, cut);  // all run at once, so that all can wait and add
    }
  }
  return best;
}

}  // namespace xgemm::matmul
