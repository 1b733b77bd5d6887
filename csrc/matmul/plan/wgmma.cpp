// The candidate of wgmma. Costs are microseconds, as in candidates.cpp; half precision's are fitted to the run "Tiles as narrow
// as fill whole waves" of docs/log/matmul.md.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/integer.h"
#include "matmul/plan/operands.h"
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kHalfLaunch = 2.04;               // half precision: everything but the tiles
constexpr double kFewRows = 1.5;                   // a k-block of few rows, of which only those in bounds are loaded
constexpr double kSwapped = 1.03;                  // a k-block of a transposed tile, relative to others
constexpr double kFill = 0.157;                    // a slot: what its two loading warps take
constexpr double kCluster = 1.19, kMeeting = 3.5;  // splits of K that a cluster adds, or CTAs through memory
constexpr double kUnalignedStore = 0.671;          // TMA cannot store C: its rows begin unaligned, or tiles end within a box
constexpr double kLineRequest = 8.87e-4;           // a cache line that an SM requests
// fp32 operands in parts: more of a CTA, for scales; of 64 k of each product, for promotion; of an unaligned element of C.
constexpr double kPartsStore = 0.718, kPartsProduct = 0.084, kUnalignedElement = 1.15e-4;
// few_rows.cuh: everything but its slots; of 128 k, and more for each row.
constexpr double kFewRowsStart = 2.44, kSlot = 0.286, kSlotRow = 0.00186;

/// Cache lines that a box's 128-byte row touches, on average: one request each. (The plan does not know the base's offset.)
double lines_a_row(const TensorOperand& x) {
  if (x.copied || x.other == 1 || x.inner <= 64) return 1;
  return 2 - static_cast<double>(std::gcd(2 * x.ld, std::int64_t{128})) / 128;
}

/// Has the kernel an instantiation? `in_cta`: splits whose sums a CTA holds, or its cluster adds.
bool has_instance(const Problem& p, WgmmaTile tile, int parts, bool k_major_b, std::int64_t in_cta) {
  const TileInfo& t = info(tile);
  const bool decode = tile == WgmmaTile::t64x64 && p.m <= 64;
  if (p.gated) return in_cta == 1 && (tile == WgmmaTile::t128x128 || (parts == 0 && (tile == WgmmaTile::t128x256 || decode)));
  if (t.n > 128 && in_cta > 1) return false;  // no registers for a second sum
  if (tile == WgmmaTile::t64x128 && parts > 0) return false;
  if (parts == 0) return t.n >= 64 || k_major_b;  // a row of 32 columns along n is too short for the 128-byte swizzle
  if (parts == 1) return t.m == 128;
  return tile == WgmmaTile::t128x128 || decode;
}

bool has_empty_split(const Problem& p, std::int64_t splits) {
  return (splits - 1) * split_blocks(p.k, splits) * kWgmmaTileK >= p.k;
}

/// Times of wgmma/kernel.cuh's tiles, with operands as the kernel loads them: in fp16 `parts`, or half precision (0).
struct WgmmaRoofline {
  const Question& q;
  int parts;
  const TensorOperand &a, &b;
  const Problem& p = q.p;
  bool swapped = false;  ///< p is the transposed problem
  double lines_a = parts ? 1 : lines_a_row(a), lines_b = parts ? 1 : lines_a_row(b);
  bool few_rows = parts == 0 && !swapped && p.m <= 64;  ///< limited by reading B, whatever the tile

  /// Calls f(columns of C per tile). Few rows with a K-major B: as many as keep all SMs equally busy. Wide tiles: for each number
  /// of tiles the fewest.
  template <class F>
  void each_width(const TileInfo& t, std::int64_t cluster, const F& f) const {
    const std::int64_t most = p.gated ? t.n / 2 : t.n;
    // An MN-major B lies in blocks of 64 columns, C is stored in boxes of 32 (fp32) or 64, which plain results need not fill.
    const bool plain = !p.c.data && !p.residual.data;
    const std::int64_t step = !b.k_major ? 64 : parts > 0 ? 32 : plain || swapped ? 16 : 64;
    const bool narrow = few_rows && t.m == 64 && t.n > 32 && b.k_major && !p.gated && p.batches == 1 && cluster == 1;
    if (narrow) return f(std::min(most, round_up(ceil_div(p.n, round_up(ceil_div(p.n, most), q.gpu.sm_count)), 8)));
    if (t.n < 128 || p.gated || parts == 2) return f(most);
    const std::int64_t least = std::min(most, most / 2 + step);
    std::int64_t tiles = ceil_div(p.n, most), width{};
    do f(width = std::max(least, round_up(ceil_div(p.n, tiles++), step)));
    while (width > least);
  }

  /// Of C; with multicast in whole pairs.
  std::int64_t tiles(const WgmmaTiling& c) const {
    const TileInfo& t = info(c.tile);
    const std::int64_t rows = ceil_div(p.m, t.m), columns = ceil_div(p.n, c.columns);
    if (!c.multicast) return rows * columns * p.batches;
    return 2 * p.batches * ceil_div(rows, 2) * columns;
  }

  double us(const WgmmaTiling& c) const {
    const TileInfo& most = info(c.tile);
    const TileInfo t = most.n >= 128 && !p.gated ? half_tile(most.name, most.m, static_cast<int>(c.columns), most.k) : most;
    const bool half = parts == 0;
    const std::int64_t ctas = tiles(c) * c.memory_splits;
    // At a time run pairs, clusters or CTAs.
    const auto rounds = static_cast<double>(c.multicast ? ceil_div(ctas / 2, std::max(1, q.gpu.sm_count / 2))
                                                        : ceil_div(ctas, clusters_at_once(c.cluster, q.gpu.sm_count)));
    const bool alone = c.cluster == 1 && c.memory_splits == 1;
    const auto k = static_cast<double>(alone ? round_up(p.k, kWgmmaTileK) : split_blocks(p.k, c.splits) * kWgmmaTileK);
    // A k-block of 64: products, and requests of cache lines by the SM; and what all SMs take from L2.
    const auto rows = static_cast<double>(std::min<std::int64_t>(p.m, t.m)),
               columns = static_cast<double>(std::min(p.n, c.columns));
    const double requests = lines_a * rows + lines_b * columns * (c.multicast ? 0.5 : 1);
    const double product =
        (few_rows && t.m == 64 ? t.block * kFewRows : std::max(swapped ? t.block * kSwapped : t.block, kFill)) * 64 / t.k;
    const double block = half ? std::max(product, kLineRequest * requests) : (parts == 2 ? 3 : 1) * (product + kPartsProduct);
    const bool boxes = swapped || (p.n % 8 == 0 && (t.m == 64 || c.columns % 64 == 0));
    const double unaligned = half ? (boxes ? 0 : kUnalignedStore) : p.n % 4 == 0 ? 0 : kUnalignedElement * t.m * t.n;
    const double store = t.start + unaligned + (half ? 0 : kPartsStore * parts);
    const double bytes = half ? 2 : 2 * parts, up = p.gated ? q.bytes_b : 0;  // of an element of A and B
    const double l2 = 1e6 * requests * bytes * k * static_cast<double>(ctas * c.cluster) / q.l2_tma_bytes();
    const double memory = q.move(bytes / q.size * (q.bytes_a + q.bytes_b + up) + q.bytes_c);
    const double sums = rows * t.n * 4,
                 add = q.add_by_meeting(kCluster, c.cluster, 2 * sums) + q.add_by_meeting(kMeeting, c.memory_splits, 2 * sums);
    return longest_us(rounds * (k / 64 * block + store), memory, l2) + rounds * add;
  }

  /// Can the kernel do it, and may it pay? Pairs do where rows straddle cache lines, or two rows of 64x64 tiles share a long B.
  bool may_pay(const WgmmaTiling& c) const {
    constexpr std::int64_t kLongK = 2048;
    const TileInfo& t = info(c.tile);
    if (swapped && (t.n < 128 || c.splits > 1)) return false;
    if (!has_instance(p, c.tile, parts, b.k_major, c.memory_splits > 1 ? 1 : c.splits)) return false;
    if (c.cluster > std::min(q.gpu.sm_count, kMaxCluster) || t.m % c.cluster != 0) return false;
    if (c.memory_splits > 1 && (parts > 0 || tiles(c) * c.memory_splits > q.gpu.sm_count)) return false;  // all run at once
    const bool pairs = p.m > t.m && t.n > 32 && c.columns % 16 == 0;
    const bool two_rows = ceil_div(p.m, t.m) == 2 && t.n == 64 && tiles(c) <= q.gpu.sm_count && p.k >= kLongK;
    const bool pays = lines_a > 1 || lines_b > 1 || two_rows;
    return !c.multicast || (parts == 0 && !p.gated && pairs && pays && c.cluster == 1 && q.gpu.sm_count > 1);
  }
};

/// Sets the plan's tiling; returns its time without passes, HUGE_VAL if no tile can do the problem. `splits`: of K; 0: the best.
double choose(const WgmmaRoofline& times, std::int64_t splits, std::string_view forced, WgmmaTiling& best) {
  const Problem& p = times.p;
  const bool few = times.few_rows && !p.gated;
  double least = HUGE_VAL;
  const auto consider = [&](WgmmaTiling c) {
    times.each_width(info(c.tile), c.cluster, [&](std::int64_t columns) {
      c.columns = columns;
      for (const bool multicast : {false, true}) {
        c.multicast = multicast;
        const double us = times.may_pay(c) ? times.us(c) : HUGE_VAL;
        if (us < least) least = us, best = c;
      }
    });
  };
  each_tile<WgmmaTile>(kWgmmaTiles, forced, [&](WgmmaTile tile, const TileInfo& t) {
    // Few rows wait for B, whatever the tile; and half of a tile's columns have a tile of their own.
    const bool wide = few ? std::max(t.m, t.n) > 64 : times.parts == 0 && !p.gated && t.n > 64 && 2 * p.n <= t.n;
    if (wide && !names_a_tile(forced)) return;
    for (std::int64_t cut = splits ? splits : 1; cut <= (splits ? splits : kMaxSplits); cut *= 2) {
      if (has_empty_split(p, cut)) continue;
      if (cut == splits || cut == 1) consider({.tile = tile, .splits = cut});
      if (cut > 1) consider({.tile = tile, .splits = cut, .cluster = cut});
      if (cut > 1) consider({.tile = tile, .splits = cut, .memory_splits = cut});
    }
  });
  return least;
}

bool can_read_b_as_it_lies(const Problem& p, const WgmmaPlan& plan) {
  constexpr std::int64_t kRows = 128, kEqual = 8;  // lines so far apart begin equally aligned, and so must matrices
  const std::int64_t along = plan.b.k_major ? p.b.row_stride : p.b.col_stride,
                     across = plan.b.k_major ? p.b.col_stride : p.b.row_stride, matrix = p.b.batch_stride[0];
  return plan.parts == 0 && !p.gated && p.m <= kRows && along == 1 && across >= plan.b.inner && plan.b.other >= kEqual &&
         (!plan.b.batch_step || (p.batch_dims == 1 && matrix > 0 && matrix % kEqual == 0));
}

/// Takes few_rows.cuh where it is faster than `us`, or named; returns the new time. Pairs of CTAs have 64 columns and up to 16 or
/// 64 rows each, or a cluster has `cut` splits.
double consider_few_rows(const Question& q, std::int64_t splits, double us, WgmmaPlan& plan) {
  const Problem& p = q.p;
  const bool named = q.forced == "wgmma_few_rows";
  if (!can_read_b_as_it_lies(p, plan) || !(named || (q.forced.empty() && plan.b.copied))) return us;
  const double slot = kSlot + kSlotRow * static_cast<double>(p.m <= 32 ? p.m : 128);
  for (std::int64_t cut = std::max<std::int64_t>(1, splits); cut <= (splits ? splits : kMaxCluster); cut *= 2) {
    if (cut > kMaxCluster || has_empty_split(p, cut)) break;
    const std::int64_t tiles = ceil_div(p.n, 64) * p.batches * (cut > 1 && p.m > 8 ? 2 : 1),
                       at_once = cut > 1 ? clusters_at_once(cut, q.gpu.sm_count) : std::max(1, q.gpu.sm_count / 2),
                       blocks = ceil_div(std::min(p.k, split_blocks(p.k, cut) * kWgmmaTileK), 128);
    const double few = (plan.a.copied + (cut > 1)) * kNextLaunch +
                       static_cast<double>(ceil_div(tiles, at_once)) *
                           (kFewRowsStart + static_cast<double>(blocks) * slot * (cut > 1 ? 1.5 : 1));
    if (few >= us && !(named && !plan.b_as_it_lies)) continue;
    us = few, plan.b_as_it_lies = true, plan.swapped = false;
    static_cast<WgmmaTiling&>(plan) = {.tile = WgmmaTile::t64x64, .splits = cut, .cluster = cut, .columns = 64};
  }
  if (!plan.b_as_it_lies) return us;
  plan.b = tensor_operand(p, lines_of_b(p), 2), plan.b.copied = false;
  plan.a = place_operand(p, lines_of_a(p), false, true);
  return us;
}

}  // namespace

std::optional<WgmmaPlan> offer_wgmma(const Question& q) {
  if (!q.legal.wgmma) return {};
  const Problem& p = q.p;
  const bool fp32 = p.dtype == DType::f32;
  WgmmaPlan plan{};
  plan.parts = fp32 ? split_parts(p.precision) : 0;
  if (q.forced.empty() && plan.parts == 2 && p.k < kLeastSplitK) return {};
  plan.a = place_operand(p, lines_of_a(p), fp32, p.gated);
  plan.b = fp32 && p.prepared_b ? prepared_operand(p.n, p.k, plan.parts) : place_operand(p, lines_of_b(p), fp32, p.gated);
  if (p.gated) plan.up = place_operand(p, lines_of_up(p), fp32, p.gated);
  const bool asked_to_swap = q.forced.ends_with("/swapped");
  const std::int64_t splits = p.gated ? 1 : !p.batch_invariant ? 0 : fp32 ? 1 : invariant_splits(p.n, p.k);
  const WgmmaRoofline times{q, plan.parts, plan.a, plan.b};
  double us = asked_to_swap ? HUGE_VAL : choose(times, splits, q.forced, plan);
  // C^T = B^T A^T, for plain results whose rows TMA can store.
  const bool may_swap = !fp32 && !p.gated && plan.a.k_major && p.n % 8 == 0 && splits <= 1 && !p.c.data && !p.residual.data &&
                        !p.factor && !p.wide_out;
  if (may_swap && (asked_to_swap || (!names_a_tile(q.forced) && std::min(p.m, p.n) > 64))) {
    const Problem across = transposed(p);
    WgmmaTiling tiling;
    const Question turned{across, q.gpu};
    const double swapped = choose({.q = turned, .parts = 0, .a = plan.b, .b = plan.a, .swapped = true}, splits, q.forced, tiling);
    if (swapped < us) us = swapped, static_cast<WgmmaTiling&>(plan) = tiling, plan.swapped = true;
  }
  if (us == HUGE_VAL) us = choose(times, splits, {}, plan);  // the named tile cannot do it
  if (us == HUGE_VAL) return {};
  const double passes = pass_us(q, lines_of_a(p), plan.a, plan.parts) + pass_us(q, lines_of_b(p), plan.b, plan.parts) +
                        (p.gated ? pass_us(q, lines_of_up(p), plan.up, plan.parts) : 0);
  us += passes + (fp32 ? 2 * kSplitLaunch : kHalfLaunch + (passes > 0 ? kNextLaunch : 0));
  us = consider_few_rows(q, splits, us, plan);
  plan.seconds = 1e-6 * us;
  plan.chunk = plan.split_length = split_blocks(p.k, plan.splits) * kWgmmaTileK;
  if (plan.parts == 2) {  // about 1024, or 1/32 of K: the tensor core truncates the small products' sum
    const std::int64_t chunks = std::max<std::int64_t>(1, plan.split_length / std::max<std::int64_t>(1024, p.k / 32));
    plan.chunk = round_up(ceil_div(plan.split_length, chunks), kWgmmaTileK);
  }
  if (plan.swapped) std::swap(plan.a, plan.b);
  take_copies(q, plan.parts, {&plan.a, &plan.b, &plan.up}, plan.workspace_bytes);
  if (fp32) plan.fallback = simt_fallback(p, q.gpu);
  if (fp32 && p.gated) plan.fallback_up = simt_fallback(up_product(p, nullptr), q.gpu);
  if (fp32 && (plan.fallback_bf16x3 = plan_bf16x3_fallback(q))) {
    plan.list = reserve(plan.workspace_bytes, 4 * bf16x3_list_words(*plan.fallback_bf16x3));
    plan.counter_bytes = std::int64_t{sizeof(FailedLines)};
  }
  if (plan.memory_splits > 1) {
    const std::int64_t tiles = times.tiles(plan);
    plan.partial_bytes = tiles * plan.memory_splits * info(plan.tile).m * info(plan.tile).n * 4, plan.counter_bytes = tiles * 8;
  }
  return plan;
}

}  // namespace xgemm::matmul
