#include "matmul/plan/roofline.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kHidden = 0.113;  // share of the shorter of compute, memory and L2 that adds to the longest

// wgmma, microseconds.
constexpr double kPair = 0.775;                     // the start of a multicast pair
constexpr double kCluster = 1.06, kMeeting = 3.81;  // splits of K that a cluster adds, or CTAs through memory
constexpr double kUnalignedStore = 0.671;           // rows of C that begin unaligned, which TMA cannot store
constexpr double kLineRequest = 8.87e-4;            // a cache line that an SM requests
constexpr double kFewRows = 0.853;                  // a k-block of few rows, of which only those in bounds are loaded

// fp32 operands in one or two fp16 parts: more of a CTA, for scales; more of 64 k of each product, in two parts for promotion.
constexpr double kPartsStore = 0.718, kPartsProduct = 0.034;

/// Cache lines that a box's 128-byte row touches, on average: one request each. (The plan does not know where the base lies in
/// its cache line.)
double lines_a_row(const TensorOperand& x) {
  if (x.copied || x.other == 1 || x.inner <= 64) return 1;
  return 2 - static_cast<double>(std::gcd(2 * x.ld, std::int64_t{128})) / 128;
}

/// Columns of C per tile. Few rows with a K-major B: as many as keep all SMs equally busy, or with splits put clusters on half
/// of the SMs or three quarters, as two SMs share their path to L2.
std::int64_t columns_of(const Problem& p, const TileInfo& t, int parts, bool k_major_b, std::int64_t cluster, int sm_count) {
  const std::int64_t most = p.gated ? t.n / 2 : t.n;
  if (t.m > 64 || t.n <= 32 || p.m > 64 || parts != 0 || !k_major_b || p.gated || p.batches > 1) return most;
  if (cluster > 1) {
    constexpr std::int64_t kLeast = 40;
    for (const int busy : {sm_count / 2, sm_count * 3 / 4}) {
      const std::int64_t wanted = round_up(ceil_div(p.n, clusters_at_once(cluster, busy)), 8);
      if (wanted <= most) return std::max(wanted, kLeast);
    }
    return most;
  }
  constexpr std::int64_t kStays = 1 << 24;  // elements of a B that stays in L2; in several waves, fewer tiles cost less
  const std::int64_t tiles = round_up(ceil_div(p.n, most), sm_count);
  return tiles > sm_count && p.n * p.k <= kStays ? most : std::min(most, round_up(ceil_div(p.n, tiles), 8));
}

/// Has the kernel an instantiation? `in_cta`: splits whose sums a CTA holds, or its cluster adds.
bool has_instance(const Problem& p, WgmmaTile tile, int parts, bool k_major_b, std::int64_t in_cta) {
  const TileInfo& t = info(tile);
  if (p.gated)
    return in_cta == 1 && (tile == WgmmaTile::t128x128 ||
                           (parts == 0 && (tile == WgmmaTile::t128x256 || (tile == WgmmaTile::t64x64 && p.m <= 64))));
  if (t.n > 128 && in_cta > 1) return false;      // no registers for a second sum
  if (parts == 0) return t.n >= 64 || k_major_b;  // a row of 32 columns along n is too short for the 128-byte swizzle
  if (parts == 1) return t.m == 128 && tile != WgmmaTile::t128x192;
  return tile == WgmmaTile::t128x128 || tile == WgmmaTile::t128x64 || (tile == WgmmaTile::t64x64 && p.m <= 64);
}

double wgmma_us(const Problem& p, const WgmmaChoice& c, int parts, double lines_a, double lines_b, const Machine& machine) {
  const TileInfo& t = info(c.tile);
  const std::int64_t tiles_m = ceil_div(p.m, t.m), tiles_n = ceil_div(p.n, c.columns), tiles = tiles_m * tiles_n * p.batches,
                     ctas = tiles * c.cluster * c.memory_splits;
  const bool share_a = shares_a(t.m, t.n), alone = c.cluster == 1 && c.memory_splits == 1;
  // At a time run pairs, clusters or CTAs.
  const std::int64_t rounds =
      c.multicast ? ceil_div(p.batches * (share_a ? tiles_m * ceil_div(tiles_n, 2) : ceil_div(tiles_m, 2) * tiles_n),
                             std::max(1, machine.sm_count / 2))
                  : ceil_div(tiles * c.memory_splits, clusters_at_once(c.cluster, machine.sm_count));
  const auto k = static_cast<double>(alone ? round_up(p.k, kWgmmaTileK) : split_blocks(p.k, c.splits) * kWgmmaTileK);
  // A k-block of 64: products, and requests of cache lines by the SM; and what all SMs take from L2.
  const auto rows = static_cast<double>(std::min<std::int64_t>(p.m, t.m)), columns = static_cast<double>(c.columns);
  const double requests =
      lines_a * rows / (c.multicast && share_a ? 2 : 1) + lines_b * columns / (c.multicast && !share_a ? 2 : 1);
  const double product = t.block * 64 / t.k * (p.m <= 64 && t.m == 64 && parts == 0 ? kFewRows : 1);
  const int operands = std::max(1, parts);
  const double block = parts == 0 ? std::max(product, lines_a > 1 || lines_b > 1 ? kLineRequest * requests : 0)
                                  : (parts == 2 ? 3 : 1) * (product + kPartsProduct);
  const double store = t.start + (parts == 0 ? (p.n % 8 == 0 ? 0 : kUnalignedStore) : kPartsStore * parts);
  const double compute = static_cast<double>(rounds) * (k / 64 * block + store);
  const double l2 = 1e6 * requests * 128 * operands * k / 64 * static_cast<double>(ctas) / machine.l2_tma_bytes;
  const double elements = static_cast<double>(p.m * p.n) * static_cast<double>(p.batches),
               read = static_cast<double>(size_of(parts ? DType::f16 : p.dtype)) * operands /
                      static_cast<double>(size_of(p.dtype)) *
                      (operand_bytes(p, lines_of_a(p)) + operand_bytes(p, lines_of_b(p)) * (p.gated ? 2 : 1)),
               memory = 1e6 * (read + stores_of_c(p) * static_cast<double>(size_of(p.dtype)) * elements) / machine.read_bytes;
  const double sums = 2 * rows * t.n * 4;  // bytes of a CTA's, sent and received
  const double join = c.memory_splits > 1 ? join_us(kMeeting, sums, machine)
                      : c.cluster > 1     ? join_us(parts == 0 ? kCluster : kMeeting, parts == 0 ? sums / 2 : 0, machine)
                                          : 0;
  return longest_us(compute, memory, l2) + static_cast<double>(rounds) * join + (c.multicast ? kPair : 0);
}

}  // namespace

double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t k, int sm_count) {
  const auto blocks = static_cast<double>(ceil_div(k, t.k)), each = static_cast<double>(ceil_div(ctas, sm_count));  // of an SM
  return each * t.start + blocks * std::max(t.block, each * t.more);
}

double stores_of_c(const Problem& p) {
  constexpr double kUnalignedC = 3.05;  // rows that begin unaligned are stored by element
  return p.dtype == DType::f32 && p.n % 4 != 0 ? kUnalignedC : 1;
}

double memory_us(const Problem& p, const Machine& machine, double times_c) {
  const double c =
      times_c * static_cast<double>(size_of(p.dtype)) * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches);
  return 1e6 * (operand_bytes(p, lines_of_a(p)) + operand_bytes(p, lines_of_b(p)) + c) / machine.read_bytes;
}

double l2_us(const Problem& p, const TileInfo& t, std::int64_t tiles, double rate) {
  return 1e6 * static_cast<double>(size_of(p.dtype)) * static_cast<double>(tiles) * static_cast<double>((t.m + t.n) * p.k) / rate;
}

double longest_us(double compute, double memory, double l2) {
  const double longest = std::max({compute, memory, l2});
  return longest + kHidden * (compute + memory + l2 - longest);
}

double join_us(double launch, double bytes_of_cta, const Machine& machine) {
  return launch + 1e6 * bytes_of_cta / machine.join_bytes;
}

WgmmaChoice fastest_wgmma(const Problem& p, int parts, const TensorOperand& a, const TensorOperand& b, std::int64_t splits,
                          const Machine& machine, std::string_view forced) {
  const double lines_a = parts ? 1 : lines_a_row(a), lines_b = parts ? 1 : lines_a_row(b);
  const bool half = parts == 0 && !p.gated;
  WgmmaChoice best;
  const auto consider = [&](WgmmaChoice c) {
    const TileInfo& t = info(c.tile);
    if (!has_instance(p, c.tile, parts, b.k_major, c.memory_splits > 1 ? 1 : c.splits)) return;
    c.columns = columns_of(p, t, parts, b.k_major, c.cluster, machine.sm_count);
    const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, c.columns) * p.batches;
    if (c.cluster > machine.sm_count || t.m % c.cluster != 0) return;
    if (c.memory_splits > 1 && tiles * c.memory_splits > machine.sm_count) return;  // all run at once, so that all can wait
    c.us = wgmma_us(p, c, parts, lines_a, lines_b, machine);
    if (c.us < best.us) best = c;
    // Pairs pay where rows straddle cache lines, by fewer requests to L2, or two rows of 64-row tiles share a long B.
    constexpr std::int64_t kRowsToShare = 16, kLongK = 2048;  // of A: sharing fewer saves nothing
    const bool pays = lines_a > 1 || lines_b > 1 || (t.m == 64 && p.m <= 128 && tiles <= machine.sm_count && p.k >= kLongK);
    const bool pairs = shares_a(t.m, t.n) ? p.n > c.columns && p.m >= kRowsToShare : p.m > t.m && c.columns % 16 == 0;
    if (!half || !pairs || !pays || c.cluster > 1 || c.memory_splits > 1 || machine.sm_count < 2) return;
    c.multicast = true, c.us = wgmma_us(p, c, parts, lines_a, lines_b, machine);
    if (c.us < best.us) best = c;
  };
  for (std::size_t i = 0; i < kWgmmaTiles.size(); ++i) {
    if (leaves_out_tile(forced, kWgmmaTiles[i].name)) continue;
    if (half && !names_a_tile(forced) && p.m <= 64 && kWgmmaTiles[i].m > 64) continue;  // few rows wait for B, whatever the tile
    const auto tile = static_cast<WgmmaTile>(i);
    for (std::int64_t cut = splits ? splits : 1; cut <= (splits ? splits : half ? kMaxSplits : kMaxCluster); cut *= 2) {
      if ((cut - 1) * split_blocks(p.k, cut) * kWgmmaTileK >= p.k) continue;
      if (cut == splits || cut == 1) consider({.tile = tile, .splits = cut});
      if (cut > 1 && cut <= kMaxCluster) consider({.tile = tile, .splits = cut, .cluster = cut});
      if (cut > 1 && half) consider({.tile = tile, .splits = cut, .memory_splits = cut});
    }
  }
  return best;
}

}  // namespace xgemm::matmul
