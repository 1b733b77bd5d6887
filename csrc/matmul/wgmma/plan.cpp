#include "matmul/wgmma/plan.h"

#include <algorithm>
#include <numeric>

#include "device/integer.h"
#include "matmul/gemv/plan.h"
#include "matmul/machine.h"

namespace xgemm::matmul {
namespace {

// Constants of the cost model beside machine.h and kWgmmaTiles, in seconds and cycles, fitted to runs of all tiles
// (docs/log/matmul.md, "Half precision: shapes that cuBLAS was ahead in", "Rows that straddle lines of L2", "Few rows, half
// precision: waves").
constexpr double kSplitLaunches = 11e-6;  // the passes over fp32 operands and the one over failed elements
constexpr double kLaunch = 2.5e-6;
constexpr double kHalfStart = 1.7e-6, kHalfCopies = 2.4e-6;  // half precision: everything but the tiles; packing
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

// few_rows.cuh, seconds: per slot of 128 k, by the most rows, or in a split; then per product, copy of A and cluster.
constexpr double kSlot16 = 0.28e-6, kSlot32 = 0.37e-6, kSlot64 = 0.38e-6, kSlot128 = 0.41e-6, kSlotSplit = 0.50e-6;
constexpr double kFewRowsStart = 2.3e-6, kFewRowsCopy = 2.0e-6, kFewRowsCluster = 4e-6;
constexpr double kFewRowsNext = 1.0e-6;  // per further wave
constexpr double kSlotAcross16 = 1.6, kSlotAcross = 2;  // B along n, relative to along k: up to 16 rows, more

// The pass that splits fp32 operands, seconds: per row of a CTA, eight CTAs an SM; per strip of 32 columns of a cluster. Bytes
// per second, read and written; of strips in two parts, which the CTAs transpose. Time with single elements, relative to quads,
// in one and in two parts.
constexpr double kSplitRow = 2e-6, kSplitStrip = 6e-6;
constexpr double kSplitBytes = 3.3e12, kSplitStripBytes = 1.9e12;
constexpr double kSinglesOnePart = 1.6, kSinglesTwoParts = 1.3;
constexpr double kOnePart = 1.40;     // corrects the model's time of one part, measured against tf32/kernel.cuh
constexpr double kCopyPays = 0.97;    // a copy must take less than this share of the time without it
constexpr double kPairCycles = 1200;  // starting a cluster
constexpr double kRowOutside = 4;     // per k-block and row of A's box that is out of bounds, where TMA is slower

struct Choice {
  WgmmaTile tile;
  std::int64_t splits, cluster, memory_splits, columns;
  bool multicast = false;
  double cycles = 1e30;
};

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

std::int64_t split_blocks(std::int64_t k, std::int64_t splits) {
  return round_up(ceil_div(ceil_div(k, kWgmmaTileK), splits), kSplitMultiple);
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
  if (info(t).m > 64 || info(t).n == 32 || p.m > 64 || parts != 0 || !b_k_major || p.gated || p.batches > 1) return most;
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

/// The tile of least predicted time, and how CTAs share it. `splits`: of K; 0: as many as are best. `lines_a`, `lines_b`: cache
/// lines that a row of the operands' boxes touches.
Choice choose(int parts, bool b_is_k_major, const Problem& problem, std::int64_t splits, int sm_count, std::string_view forced,
              double lines_of_a = 1, double lines_of_b = 1) {
  const auto k_major_a = [](const Problem& p) { return p.a.row_stride != 1 || p.a.col_stride == 1; };  // as in `place`
  const Problem swapped = swap_ab(problem);
  const std::int64_t products = parts == 2 ? 3 : 1;
  const bool one = forced.find('_') != forced.npos;  // a tile is named
  Choice best{.tile = problem.gated ? WgmmaTile::t128x128 : WgmmaTile::t128x64,
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
      if (!one && few && tile.n == 32 && again) continue;
      // Each row of tiles reads all of B: it pays with few rows of tiles, or if half of the last 128-row tile were redundant.
      if (!one && t == WgmmaTile::t64x256 && ceil_div(p.m, tile.m) % 2 == 0 && p.m > 128) continue;
      const bool one_row = half && few && t == WgmmaTile::t64x64;
      const double fixed = one_row ? kOneRowFixed : half ? tile.fixed : parts == 2 ? tile.fixed_highest : tile.fixed_high;
      const std::int64_t tiles_m = ceil_div(p.m, tile.m), tiles_n = ceil_div(p.n, wide);
      const bool straddles = lines_a > 1 || lines_b > 1, share_a = shares_a(tile.m, tile.n);
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
      const double store = !half || problem.n % 8 == 0 ? 0 : tile.n == 32 ? kUnalignedNarrowStore : kUnalignedStore;
      const auto consider = [&](std::int64_t cluster, std::int64_t memory_splits, bool pair = false) {
        if (cluster > sm_count || !serves(parts, b_k_major, p, t, memory_splits > 1 ? 1 : cut)) return;
        const std::int64_t blocks = cluster == 1 && memory_splits == 1 ? ceil_div(p.k, kWgmmaTileK) : split_blocks(p.k, cut);
        const double bytes = static_cast<double>(std::min<std::int64_t>(p.m, tile.m) * tile.n * 4);
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

/// `copied`: pack it in any case. `along_k`: the kernel needs it contiguous along k.
TensorOperand place(const Problem& p, const OperandLines& x, bool copied, bool along_k) {
  TensorOperand t = tensor_operand(p, x, 2, along_k);
  // A box along few lines is mostly out of bounds: 411 cycles a k-block for 6 rows of A, 150 along k.
  constexpr std::int64_t kFewLines = 64;
  if (is_half(p.dtype) && t.copied && x.count <= kFewLines) t = tensor_operand(p, x, 2, true);
  // Rows of a copy are whole cache lines: a box whose rows straddle two takes up to twice as long.
  if (copied || t.copied) place_copy(t, round_up(t.inner, t.inner > 64 ? 64 : 8));
  return t;
}

/// Cache lines that a box's 128-byte row touches, on average: one request each. (The plan does not know where the base lies in
/// its cache line.)
double lines_a_row(const TensorOperand& x) {
  if (x.copied || x.other == 1 || x.inner <= 64) return 1;
  return 2 - static_cast<double>(std::gcd(2 * x.ld, std::int64_t{128})) / 128;
}

/// Seconds of a half-precision product with operands a and b.
double half_seconds(const Problem& p, const Choice& choice, const TensorOperand& a, const TensorOperand& b,
                    const Machine& machine) {
  double bytes = 2.0 * static_cast<double>(p.m * p.n * p.batches), copies = 0;
  for (const TensorOperand* x : {&a, &b}) {
    const double all = 2.0 * static_cast<double>(x->inner * x->other * x->batches);
    bytes += all;
    copies += x->copied ? 2 * all : 0;
  }
  return kHalfStart + (copies > 0 ? kHalfCopies + copies / machine.copy_bytes : 0) +
         std::max(choice.cycles / machine.hertz_wgmma, bytes / machine.wgmma_bytes);
}

/// Seconds of wgmma/few_rows.cuh: slots of 128 k, in pairs of CTAs with 64 columns. A split costs more, as its CTA loads all of
/// its B.
double few_rows_seconds(const Problem& p, const WgmmaPlan& plan, int sm_count) {
  const bool cut = plan.splits > 1;
  const double along = cut         ? kSlotSplit
                       : p.m <= 16 ? kSlot16
                       : p.m <= 32 ? kSlot32
                       : p.m <= 64 ? kSlot64
                                   : kSlot128,
               slot = plan.b.k_major ? along : (p.m <= 16 ? kSlotAcross16 : kSlotAcross) * along;
  const std::int64_t tiles = ceil_div(p.n, 64) * p.batches * (cut && p.m > 8 ? 2 : 1),
                     waves = ceil_div(tiles, cut ? clusters_at_once(plan.splits, sm_count) : std::max(1, sm_count / 2)),
                     part = std::min(p.k, split_blocks(p.k, plan.splits) * kWgmmaTileK);
  return kFewRowsStart + (plan.a.copied ? kFewRowsCopy : 0) + (cut ? kFewRowsCluster : 0) +
         static_cast<double>(waves * ceil_div(part, 128)) * slot + static_cast<double>(waves - 1) * kFewRowsNext;
}

/// Does wgmma/few_rows.cuh read B in place? With few rows, a copy of a large B costs more than it saves. The choice changes no
/// bits. `copying`: seconds of the product with copies.
bool reads_b_as_it_lies(const Problem& p, const WgmmaPlan& plan, double copying, int sm_count, std::string_view forced) {
  constexpr std::int64_t kRows = 128;
  constexpr std::int64_t kEqual = 8;  // lines so far apart begin equally aligned, and so must matrices
  const std::int64_t along = plan.b.k_major ? p.b.row_stride : p.b.col_stride,
                     across = plan.b.k_major ? p.b.col_stride : p.b.row_stride, matrix = p.b.batch_stride[0];
  const bool can = plan.parts == 0 && !p.gated && p.m <= kRows && plan.splits <= kMaxCluster && along == 1 &&
                   across >= plan.b.inner && plan.b.other >= kEqual &&
                   (!plan.b.batch_step || (p.batch_dims == 1 && matrix > 0 && matrix % kEqual == 0));
  if (!forced.empty()) return can && forced == "wgmma_few_rows";
  return can && plan.b.copied && few_rows_seconds(p, plan, sm_count) < copying;
}

/// Seconds of a fp32 product, passes over the operands included.
double fp32_seconds(const WgmmaPlan& plan, const Problem& p, const Choice& choice, const Machine& machine) {
  // One CTA per row, eight an SM; or a cluster of eight CTAs per strip, two CTAs an SM. Short rows are limited by the start.
  const auto passes = [&](const TensorOperand& x, std::int64_t lines, bool vectors) {
    if (x.prepared) return 0.0;
    const double all = static_cast<double>(lines * (x.batch_step ? p.batches : 1));
    const double blocks = x.k_major ? all / (8 * 132) * kSplitRow : all / 32 * 8 / (2 * 132) * kSplitStrip;
    const double slower = vectors ? 1 : plan.parts == 1 ? kSinglesOnePart : kSinglesTwoParts;
    const double rate = x.k_major || plan.parts == 1 ? kSplitBytes : kSplitStripBytes;
    return std::max(slower * (4.0 + 2 * plan.parts) * all * static_cast<double>(p.k) / rate, blocks);
  };
  const double launches = plan.b.prepared ? kSplitLaunches - kLaunch : kSplitLaunches;
  const double seconds = choice.cycles / machine.hertz_wgmma + kLaunch + launches +
                         passes(plan.a, p.m, has_vectors(p, lines_of_a(p), 4)) +
                         passes(plan.b, p.n, has_vectors(p, lines_of_b(p), 4)) +
                         (p.gated ? passes(plan.up, p.n, has_vectors(p, lines_of_b(p), 4)) : 0);
  return plan.parts == 1 ? kOnePart * seconds : seconds;
}

}  // namespace

TensorOperand prepared_operand(std::int64_t n, std::int64_t k, int parts) {
  const PreparedLayout layout = prepared_layout(n, k, parts);
  return {.copied = true,
          .prepared = true,
          .k_major = true,
          .inner = k,
          .other = n,
          .ld = layout.ld,
          .plane = n * layout.ld,
          .batch_step = 0,
          .batches = 1,
          .copy = 0,
          .stats = layout.stats};
}

std::int64_t wgmma_splits(std::int64_t n, std::int64_t k) {
  std::int64_t splits = 1;
  if (n <= 512 && k >= 16384) {  // long K: enough splits to fill the GPU with 64-column tiles, each at least 1024 long
    splits = std::min(kMaxSplits / ceil_div(n, 64), k / 1024);
    while ((splits - 1) * split_blocks(k, splits) * kWgmmaTileK >= k) --splits;
    return splits;
  }
  const std::int64_t most = n <= 512 ? kMaxCluster : 4;  // few clusters of 8 run at once
  while (splits < most && n <= 1024 && k >= 1536 * splits && ceil_div(n, 32) * splits * 2 <= 132) splits *= 2;
  while (splits > 1 && (splits - 1) * split_blocks(k, splits) * kWgmmaTileK >= k) splits /= 2;  // no empty split
  return splits;
}

std::optional<WgmmaPlan> plan_wgmma(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 1024;  // TMA's coordinates
  const bool fp32 = p.dtype == DType::f32, any = forced.starts_with("wgmma");
  if (gpu.major != 9 || (!fp32 && !is_half(p.dtype)) || p.k < 1 || p.m < 1 || p.n < 1) return {};
  if (!forced.empty() && !any) return {};
  if (fp32 && p.precision == Precision::ieee) return {};
  if (p.m > kLimit || p.n > kLimit || p.k > 8'000'000 || p.batches * std::max(p.m, p.n) > kLimit ||
      ceil_div(p.m, 64) * ceil_div(p.n, 32) * p.batches > kLimit)
    return {};
  if (fp32 && p.batches > kLimit / 16) return {};  // else parts of matrices and blocks of split_columns() would exceed 2^31

  const Machine machine = machine_of(gpu);
  WgmmaPlan plan{};
  plan.parts = fp32 ? split_parts(p.precision) : 0;
  // For smaller K, a product's own error (2^-22) shows next to the rounding of SGEMM's sum.
  if (plan.parts == 2 && p.k < 128 && !any) return {};
  // One lossy element fails a line of so short a K. About one in 500 lines of normal data has one, so that half of the product
  // would be computed again. Three bf16 parts have no lossy elements.
  if (plan.parts == 2 && p.k < 256 && !any && !p.batch_invariant && !p.gated && !p.prepared_b) return {};
  plan.a = place(p, lines_of_a(p), fp32, p.gated);
  plan.b = fp32 && p.prepared_b ? prepared_operand(p.n, p.k, plan.parts) : place(p, lines_of_b(p), fp32, p.gated);
  if (p.gated) plan.up = place(p, lines_of_up(p), fp32, p.gated);
  // fp32's splits may depend on M as its choice between tensor and CUDA cores does.
  const std::int64_t splits = p.gated ? 1 : !fp32 ? wgmma_splits(p.n, p.k) : p.batch_invariant ? 1 : 0;
  const auto choose_for = [&](const TensorOperand& a, const TensorOperand& b) {
    const double lines_a = fp32 ? 1 : lines_a_row(a), lines_b = fp32 ? 1 : lines_a_row(b);
    const Choice choice = choose(plan.parts, b.k_major, p, splits, gpu.sm_count, forced, lines_a, lines_b);
    if (choice.cycles < 1e30) return choice;
    return choose(plan.parts, b.k_major, p, splits, gpu.sm_count, {}, lines_a, lines_b);  // the named tile cannot do it
  };
  Choice choice = choose_for(plan.a, plan.b);
  if (!fp32 && !p.gated) {  // rows that straddle cache lines: pack them if that pays
    const TensorOperand as_they_lie[2] = {plan.a, plan.b};
    double least = half_seconds(p, choice, plan.a, plan.b, machine);
    for (int copies = 1; copies < 4; ++copies) {
      TensorOperand x[2] = {as_they_lie[0], as_they_lie[1]};
      if (((copies & 1) && lines_a_row(x[0]) == 1) || ((copies & 2) && lines_a_row(x[1]) == 1)) continue;
      if (copies & 1) x[0] = place(p, lines_of_a(p), true, false);
      if (copies & 2) x[1] = place(p, lines_of_b(p), true, false);
      const Choice other = choose_for(x[0], x[1]);
      const double seconds = half_seconds(p, other, x[0], x[1], machine);
      if (seconds < kCopyPays * least) least = seconds, choice = other, plan.a = x[0], plan.b = x[1];
    }
  }
  plan.tile = choice.tile, plan.splits = choice.splits, plan.columns = choice.columns;
  plan.cluster = choice.cluster, plan.memory_splits = choice.memory_splits, plan.multicast = choice.multicast;
  if (reads_b_as_it_lies(p, plan, half_seconds(p, choice, plan.a, plan.b, machine), gpu.sm_count, forced)) {
    plan.b_as_it_lies = true, plan.b.copied = false;
    plan.a = place(p, lines_of_a(p), false, true);
    plan.tile = WgmmaTile::t64x64, plan.columns = info(plan.tile).n;
    plan.cluster = plan.splits, plan.memory_splits = 1, plan.multicast = false;
  }
  plan.chunk = plan.split_length = split_blocks(p.k, plan.splits) * kWgmmaTileK;
  if (plan.parts == 2) {  // about 1024, or 1/32 of K: both levels of sums stay short
    const std::int64_t chunks = std::max<std::int64_t>(1, plan.split_length / std::max<std::int64_t>(1024, p.k / 32));
    plan.chunk = round_up(ceil_div(plan.split_length, chunks), kWgmmaTileK);
  }

  if (!fp32) {
    if (!any && (p.n < 8 || p.k < 16)) return {};  // too little for the tensor cores' tiles, whatever M is
    plan.seconds = plan.b_as_it_lies ? few_rows_seconds(p, plan, gpu.sm_count) : half_seconds(p, choice, plan.a, plan.b, machine);
  } else {
    plan.seconds = fp32_seconds(plan, p, choice, machine);
    if (p.batch_invariant && !any) {
      const Problem q = with_many_rows(p);
      WgmmaPlan many = plan;
      many.a = place(q, lines_of_a(q), true, p.gated);
      plan.seconds = fp32_seconds(many, q, choose(plan.parts, plan.b.k_major, q, splits, gpu.sm_count, {}), machine);
    }
    Problem ieee = p;  // the product on CUDA cores
    ieee.precision = Precision::ieee;
    const auto fallback = [&](const Problem& r) {
      // For few rows gemv would be faster, but it computes whole products only.
      SimtPlan simt = plan_simt(r, gpu, std::min(r.m, r.n) <= kGemvLines ? info(SimtTile::t16x128).name : "");
      simt.splits = 1, simt.workspace_bytes = 0;  // the launch must be short if nothing failed
      return simt;
    };
    plan.fallback = fallback(ieee);
    if (p.gated) plan.fallback_up = fallback(up_product(ieee, nullptr));
  }

  std::int64_t bytes = 0;
  const auto take = [&](std::int64_t size) {
    const std::int64_t at = bytes;
    bytes = round_up(bytes + size, 256);
    return at;
  };
  for (TensorOperand* x : {&plan.a, &plan.b, &plan.up}) {
    if (!x->copied || x->prepared) continue;  // a copy made before, or no operand
    x->copy = take(2 * std::max(1, plan.parts) * x->plane * x->batches);
    if (fp32) x->stats = take(16 * (x->k_major ? x->other : x->inner) * x->batches);
  }
  const std::int64_t tiles = ceil_div(p.m, info(plan.tile).m) * ceil_div(p.n, plan.columns) * p.batches;
  const std::int64_t tile_bytes = info(plan.tile).m * info(plan.tile).n * 4;
  if (fp32 && (plan.fallback_bf16x3 = plan_bf16x3_fallback(p, gpu.sm_count))) {
    plan.list = take(4 * bf16x3_list_words(*plan.fallback_bf16x3));
    plan.counter_bytes = std::int64_t{sizeof(FailedLines)};
  }
  if (plan.memory_splits > 1) {
    plan.partial_bytes = tiles * plan.memory_splits * tile_bytes;
    plan.counter_bytes = tiles * 8;
  }
  plan.workspace_bytes = bytes;
  return plan;
}

}  // namespace xgemm::matmul
