#include "matmul/wgmma/tile_plan.h"

#include <algorithm>
#include <optional>

#include "device/integer.h"
#include "matmul/forced.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// The cost model beside machine.h and kWgmmaTiles, in cycles, fitted to runs of all tiles (docs/log/matmul.md, "Half precision:
// shapes that cuBLAS was ahead in", "Rows that straddle cache lines", "Few rows, half precision: waves").
constexpr double kMergeCycles = 1200, kCrowdCycles = 900, kAddCycles = 140, kMeetCycles = 5300;
constexpr double kMergeCyclesFp32 = 5000, kAddCyclesFp32 = 600;
// Bytes per cycle: from memory; of one SM's partial sums; from L2, all SMs together.
constexpr double kMemoryRate = 2640, kPartialRate = 14, kL2Rate = 8200;
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
  return info(t).n % 64 == 0 || b_k_major;  // a row of 32 columns along n is too short for the 128-byte swizzle
}

/// Columns of C per tile. Few rows: as many as keep all SMs equally busy.
std::int64_t columns_of(int parts, bool b_k_major, const Problem& p, WgmmaTile t, std::int64_t splits, int sm_count) {
  const std::int64_t most = columns(p, t);
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

/// What the caller of choose_tile asks for.
struct Request {
  int parts;  ///< as WgmmaPlan's
  bool b_k_major;
  const Problem& problem;
  std::int64_t splits;  ///< of K; 0: as many as are best
  int sm_count;
  bool named;               ///< one tile is forced: rules of thumb do not count
  double lines_a, lines_b;  ///< cache lines that a row of an operand's box touches
};

bool is_k_major_a(const Problem& p) { return p.a.row_stride != 1 || p.a.col_stride == 1; }  // as in `place`, plan.cpp

/// A product by one tile, K in `cut` splits: how many tiles, what limits them, and the cycles that they are predicted to take.
struct TiledProduct {
  const Request& request;
  const Problem& p;
  WgmmaTile t;
  const WgmmaTileInfo& tile;
  std::int64_t cut, wide;  ///< wide: columns of C per tile
  std::int64_t tiles_m, tiles_n, tiles, pairs;
  bool half, few, straddles, share_a;

  TiledProduct(const Request& r, WgmmaTile which, std::int64_t splits)
      : request(r), p(r.problem), t(which), tile(info(which)), cut(splits) {
    wide = columns_of(r.parts, r.b_k_major, p, t, cut, r.sm_count);
    tiles_m = ceil_div(p.m, tile.m), tiles_n = ceil_div(p.n, wide), tiles = tiles_m * tiles_n * p.batches;
    half = r.parts == 0 && !p.gated, few = p.m <= 64, straddles = r.lines_a > 1 || r.lines_b > 1,
    share_a = shares_a(tile.m, tile.n);
    pairs = p.batches * (share_a ? tiles_m * ceil_div(tiles_n, 2) : ceil_div(tiles_m, 2) * tiles_n);
  }

  /// False where other tiles are faster: measured.
  bool is_sensible() const {
    // With few rows and B in L2 a second wave costs more than narrow tiles save.
    return !(few && tile.n <= 32 && tiles > request.sm_count);
  }

  /// Multicast: each CTA of a pair loads half of an operand for both.
  bool can_pair() const {
    constexpr std::int64_t kRowsToShare = 16;  // of A: sharing fewer saves nothing
    return half && request.sm_count > 1 && (share_a ? tiles_n > 1 && p.m >= kRowsToShare : tiles_m > 1 && wide % 16 == 0);
  }
  /// Two rows of tiles in one wave with K unsplit and long enough for the cluster's start; else pairs pay by saving L2 requests.
  bool always_pairs() const {
    return can_pair() && tile.m == 64 && tile.n > 32 && tiles_m == 2 && tiles <= request.sm_count && p.batches == 1 && cut == 1 &&
           p.k >= 2048;
  }

  /// A single row of tiles of 64x64.
  bool one_row() const { return half && few && t == WgmmaTile::t64x64; }

  /// Cycles of a k-block. `ctas`: that run it, not for pairs.
  double block_cycles(bool pair, std::int64_t ctas) const {
    if (!half) return tile.block_fp32;
    const int sm_count = request.sm_count;
    double block = one_row() ? kOneRowBlock : tile.block;
    const double rows = static_cast<double>(std::min<std::int64_t>(p.m, tile.m)),
                 from_l2 = (request.lines_a * rows / (pair && share_a ? 2 : 1) +
                            request.lines_b * static_cast<double>(pair && !share_a ? wide / 2 : wide)) *
                           128;
    const auto all = static_cast<double>(pair ? 2 * pairs : ctas);
    double busy = std::min(all, static_cast<double>(sm_count)), rate = kL2Rate;
    if (straddles) {  // limited by L2 requests: of all SMs, and of one SM
      busy = all / static_cast<double>(pair ? ceil_div(pairs, sm_count / 2) : ceil_div(ctas, sm_count));
      block = std::max(block, kLineCycles * from_l2 / 128);
      rate = p.m > 128 ? kLinesRate : kSameLinesRate;
    }
    // Tiles of the same rows or columns read them from memory once.
    const double from_memory =
        128 * (rows / static_cast<double>(tiles_n) + static_cast<double>(wide) / static_cast<double>(tiles_m));
    return std::max({block, from_l2 * busy / rate, from_memory * std::min(all, static_cast<double>(sm_count)) / kMemoryRate});
  }

  /// Cycles with the splits in a cluster of `cluster` CTAs, in `memory_splits` CTAs, or (both 1) in one CTA; nothing if the
  /// kernel cannot do it, or not as predicted.
  std::optional<double> cycles(std::int64_t cluster, std::int64_t memory_splits, bool pair) const {
    const int sm_count = request.sm_count;
    const bool alone = cluster == 1 && memory_splits == 1;
    if (cluster > sm_count || !serves(request.parts, request.b_k_major, p, t, memory_splits > 1 ? 1 : cut)) return {};
    if (cluster > 1 && tile.m % cluster != 0) return {};
    const std::int64_t products = request.parts == 2 ? 3 : 1,
                       blocks = alone ? ceil_div(p.k, kWgmmaTileK) : split_blocks(p.k, cut),
                       waves = pair ? ceil_div(pairs, sm_count / 2)
                                    : ceil_div(tiles * memory_splits, clusters_at_once(cluster, sm_count));
    const double fixed = one_row() ? kOneRowFixed : half ? tile.fixed : request.parts == 2 ? tile.fixed_highest : tile.fixed_high;
    const bool narrow = tile.n <= 32 && p.m > 8 && alone;
    const double store = !half || request.problem.n % 8 == 0 ? 0 : narrow ? kUnalignedNarrowStore : kUnalignedStore;
    // Partial sums. One CTA per two SMs, which share a path to L2, is faster.
    const double sent = static_cast<double>(std::min<std::int64_t>(p.m, tile.m) * tile.n * 4) / kPartialRate;
    const double crowd = tiles > clusters_at_once(cluster, sm_count / 2) ? kCrowdCycles : 0;
    const double extra = memory_splits > 1 ? sent
                         : cluster > 1     ? (half ? kMergeCycles + crowd + sent : kMergeCyclesFp32)
                                           : static_cast<double>(cut - 1) * (half ? kAddCycles : kAddCyclesFp32);
    const double outside =
        half && p.m > tile.m && !is_k_major_a(p) ? kRowOutside * static_cast<double>(round_up(p.m, tile.m) - p.m) : 0;
    return static_cast<double>(waves) *
               (static_cast<double>(blocks * products) * block_cycles(pair, tiles * cluster * memory_splits) + fixed + extra +
                store) +
           (half ? static_cast<double>(waves - 1) * kNextTile : 0) + static_cast<double>(blocks) * outside +
           (memory_splits > 1 ? kMeetCycles + sent : 0) + (pair && !always_pairs() ? kPairCycles : 0);
  }

  /// Calls consider(cluster, memory_splits, pair) for each way that CTAs may share the tiles.
  template <class F>
  void each_way(const F& consider) const {
    if (request.splits || cut == 1) {
      if (!always_pairs()) consider(1, 1, false);
      // 300x4104x4104 in three waves of 64x64: 58 us in pairs, 41 in 128x128.
      if (always_pairs() || (can_pair() && straddles && (tile.m == 128 || tiles <= request.sm_count))) consider(1, 1, true);
    }
    if (cut > 1 && cut <= kMaxCluster) consider(cut, 1, false);
    if (cut > 1 && half && tiles * cut <= request.sm_count)
      consider(1, cut, false);  // all run at once, so that all can wait and add
  }
};

}  // namespace

std::int64_t split_blocks(std::int64_t k, std::int64_t splits) {
  return round_up(ceil_div(ceil_div(k, kWgmmaTileK), splits), kSplitMultiple);
}

WgmmaTileChoice choose_tile(int parts, bool b_is_k_major, const Problem& problem, std::int64_t splits, int sm_count,
                            std::string_view forced, double lines_of_a, double lines_of_b) {
  const bool named = names_a_tile(forced);
  const Request request{parts, b_is_k_major, problem, splits, sm_count, named, lines_of_a, lines_of_b};
  WgmmaTileChoice best{.tile = problem.gated ? WgmmaTile::t128x128 : WgmmaTile::t128x64,
                       .splits = std::max<std::int64_t>(1, splits),
                       .cluster = 1,
                       .memory_splits = 1,
                       .columns = 64};
  for (std::size_t i = 0; i < kWgmmaTiles.size(); ++i) {
    const WgmmaTileInfo& tile = kWgmmaTiles[i];
    if (leaves_out_tile(forced, tile.name) || (!named && parts == 0 && problem.m <= 64 && tile.m > 64)) continue;
    for (std::int64_t cut = splits ? splits : 1; cut <= (splits ? splits : kMaxCluster); cut *= 2) {
      if ((cut - 1) * split_blocks(problem.k, cut) * kWgmmaTileK >= problem.k) continue;
      const TiledProduct product(request, static_cast<WgmmaTile>(i), cut);
      if (!named && !product.is_sensible()) continue;
      product.each_way([&](std::int64_t cluster, std::int64_t memory_splits, bool pair) {
        const std::optional<double> cycles = product.cycles(cluster, memory_splits, pair);
        if (cycles && *cycles < best.cycles) best = {product.t, cut, cluster, memory_splits, product.wide, pair, *cycles};
      });
    }
  }
  return best;
}

}  // namespace xgemm::matmul
