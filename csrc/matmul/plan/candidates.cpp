// The candidates of all families on tensor cores but wgmma (wgmma.cpp). Costs are microseconds of an H200 under load, fitted to
// benchmarks/results/nvidia_h200/matmul_plans.json (tools/plan_costs) unless a comment says otherwise.
#include <algorithm>
#include <string>

#include "device/integer.h"
#include "matmul/plan/offers.h"
#include "matmul/plan/operands.h"
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kFp64Launch = 1.12, kFp64Split = 0.0347;  // a launch; the last launch reads the sums of a split
// mma: a launch; more of a k-block (times that) for an operand whose rows are loaded through registers by element, by 4 bytes a
// quarter of it, by 8 an eighth; CTAs that share a tile's K meet.
constexpr double kMmaLaunch = 1.01, kMmaElements = 1.17, kMmaMeeting = 2.06;
// sliced: a launch; a cluster adds splits, in each wave; k-blocks loaded by element relative to quads; warps that have a tile
// each: a CTA's start, and 16 k of all warps relative to 128 k that they share.
constexpr double kSlicedLaunch = 0.96, kSlicedCluster = 2.17, kSlicedElements = 1.2, kApartStart = 2.19, kApartBlock = 0.945;
// tf32: a launch; a level of kTf32Fan sums; a copy that transposes, relative to another: it writes half sectors of L2.
constexpr double kTf32Launch = 1.08, kTf32Join = 0.7, kTransposed = 2.44;
// bf16x3: a launch; a CTA shares a tile; a half warp's up to four partial sums; time with element-wise loads of B.
constexpr double kBf16x3Launch = 2.57, kBf16x3Share = 0.896, kBf16x3Read = 0.548, kBf16x3Elements = 1.49;

/// mma: multiples of bytes that an operand's rows start and end at.
int aligned_bytes(const Problem& p, const OperandLines& x) {
  const auto size = static_cast<int>(size_of(p.dtype));
  return has_vectors(p, x, 16 / size) ? 16 : has_vectors(p, x, 2) ? 2 * size : size;
}

/// Half precision on mma: beyond, or with rows of whole cache lines, which TMA loads best, wgmma is faster.
bool too_long_for_mma(const Problem& p, const MmaPlan& plan) {
  constexpr std::int64_t kLongest = 1024, kLongestWhole = 384;
  const bool whole =
      (a_along_k(p) ? p.a.row_stride : p.a.col_stride) % 64 == 0 && (b_along_k(p) ? p.b.col_stride : p.b.row_stride) % 64 == 0;
  return p.k > (plan.is_unaligned() || !whole ? kLongest : kLongestWhole);
}

/// tf32: whole cache lines of what TMA cannot load.
TensorOperand place_tf32(const Problem& p, const OperandLines& x, bool along_k) {
  TensorOperand t = tensor_operand(p, x, 4, along_k);
  if (t.copied) place_copy(t, round_up(t.inner, kTf32TileK));
  return t;
}

/// Sets a plan's operands and their places; returns the time of their copies.
double place_operands(const Question& q, Tf32Plan& plan) {
  const Problem& p = q.p;
  const auto copy_us = [&](const TensorOperand& x) { return q.move(8 * static_cast<double>(x.ld * x.other * x.batches)); };
  plan.a = place_tf32(p, lines_of_a(p), false), plan.b = place_tf32(p, lines_of_b(p), false);
  const TensorOperand* transposed = nullptr;
  if (!plan.a.k_major && !plan.b.k_major) {  // the one whose transposition adds less to the other copies
    const auto added = [&](const TensorOperand& x) { return (kTransposed - (x.copied ? 1 : 0)) * copy_us(x); };
    const bool of_a = added(plan.a) < added(plan.b);
    TensorOperand& x = of_a ? plan.a : plan.b;
    x = place_tf32(p, of_a ? lines_of_a(p) : lines_of_b(p), true), transposed = &x;
  }
  double us = 0;
  for (TensorOperand* x : {&plan.a, &plan.b}) {
    if (!x->copied) continue;
    us = std::max(us, kNextLaunch) + (x == transposed ? kTransposed : 1) * copy_us(*x);
    x->copy = reserve(plan.workspace_bytes, 4 * x->plane * x->batches);
  }
  return us;
}

/// bf16x3: partial sums of a tile that `pieces` CTAs share, read by the busiest half warp, four at a time.
std::int64_t bf16x3_reads(int rows, std::int64_t pieces) {
  return pieces > kBf16x3FewPieces ? ceil_div(rows, pieces) * ceil_div(ceil_div(pieces, 8), 4) + 2
                                   : rows / 8 * ceil_div(pieces, 4);
}

Bf16x3Plan bf16x3_plan(const Question& q, Bf16x3Tile tile) {
  const Problem& p = q.p;
  Bf16x3Plan plan{};
  plan.tile = tile, plan.b = tensor_operand(p, lines_of_b(p), 4), plan.a_vectors = q.quads_a;
  plan.tiles = ceil_div(p.m, info(tile).m) * ceil_div(p.n, info(tile).n) * p.batches;
  plan.blocks = ceil_div(p.k, kBf16x3Block);
  return plan;
}

// large, by the rates of the device (machine.h), no time was fitted: of a CTA the first loads and the store of C; shares of the
// rate: an H200 with XGEMM_ARCH=80; of that with sums in fp32.
constexpr double kLargeStart = 2.5, kLargeReached = 0.82, kLargeTwoParts = 0.79;

/// CTAs of a tile that find room on an SM.
int beside_of(const DeviceProperties& gpu, LargeTile tile, int parts) {
  constexpr std::size_t kReserved = 1024;  // of a CTA, by the system
  const std::size_t bytes = static_cast<std::size_t>(geometry(tile).slots * large_slot_bytes(tile, parts));
  return bytes + kReserved > gpu.smem_per_block
             ? 0
             : std::min(info(tile).per_sm, static_cast<int>(gpu.smem_per_sm / (bytes + kReserved)));
}

/// A tile with its costs on this device: a k-block takes the tensor cores' time, or that of shared memory, which delivers the
/// fragments of all warps and receives the slot.
TileInfo on_device(const Question& q, LargeTile tile, int parts, int beside) {
  constexpr double kSharedBytes = 128;  // a clock and SM
  TileInfo t = info(tile);
  const MmaGeometry g = geometry(tile);
  const double clocks = static_cast<double>(t.m) * t.n * t.k * (parts == 2 ? 3 : 1) / q.machine.mma;
  const double bytes = 2.0 * t.k * parts * (g.warps_columns * t.m + g.warps_rows * t.n + t.m + t.n);
  const double block = 1e6 / q.machine.clock_hz * std::max(clocks, bytes / kSharedBytes) / (parts == 2 ? kLargeTwoParts : 1);
  t.per_sm = beside, t.start = kLargeStart;
  t.block = t.more = block / kLargeReached;
  return t;
}

}  // namespace

std::optional<Fp64Plan> offer_fp64(const Question& q) {
  if (!q.legal.fp64) return {};
  const Problem p = fp64_problem(q.p);
  constexpr std::int64_t kMostSplits = 512;
  const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(p.k, kFp64TileK)), ordered = fp64_segment(p.n, p.k);
  const auto wanted = forced_splits(q.forced);
  Least<Fp64Plan> least;
  each_tile<Fp64Tile>(kFp64Tiles, q.forced, [&](Fp64Tile tile, TileInfo t) {
    t.block *= q.machine.mma_f64_slower, t.more *= q.machine.mma_f64_slower;
    const std::int64_t rows = ceil_div(p.m, t.m), columns = ceil_div(p.n, t.n), tiles = rows * columns * p.batches;
    if (rows > kMostLines / columns / p.batches) return;
    const auto consider = [&](std::int64_t of_cta) {  // k-blocks
      const std::int64_t splits = ceil_div(blocks, of_cta), segment = p.batch_invariant ? ordered : of_cta,
                         segments = ceil_div(blocks, segment), sums = splits > 1 ? p.m * p.n * p.batches * segments : 0;
      if ((wanted && splits != *wanted) || (p.batch_invariant && segments > 1 && !has_totals(tile))) return;
      least.consider(
          {tile, blocks, segment, of_cta, splits, 8 * sums, 0},
          kFp64Launch + q.product(t, tiles, splits, of_cta * kFp64TileK, q.machine.l2_async_bytes) +
              (splits > 1 ? kNextLaunch + q.move(16 * static_cast<double>(sums)) + kFp64Split * static_cast<double>(segments)
                          : 0));
    };
    if (p.batch_invariant)
      return each_halving(ceil_div(blocks, ordered),
                          [&](std::int64_t, std::int64_t each) { consider(std::min(blocks, each * ordered)); });
    if (wanted) return *wanted >= 1 && *wanted <= kMostSplits ? consider(ceil_div(blocks, *wanted)) : void();
    consider(blocks);
    constexpr int kMostWaves = 8;
    for (int ctas = 1; ctas <= kMostWaves; ++ctas) {  // of an SM: whole waves, or less of what runs at once
      std::int64_t splits = std::min({blocks, kMostSplits, q.gpu.sm_count * ctas / tiles});
      for (; splits > 1; splits = ctas <= t.per_sm ? splits / 2 : 1) consider(ceil_div(blocks, splits));
    }
  });
  return least.best;
}

std::optional<MmaPlan> offer_mma(const Question& q) {
  if (!q.legal.mma) return {};
  const Problem& p = q.p;
  const bool tf32 = p.dtype == DType::f32;
  MmaPlan plan{};
  plan.bytes_a = aligned_bytes(p, lines_of_a(p)), plan.bytes_b = aligned_bytes(p, lines_of_b(p));
  if (!tf32 && q.forced.empty() && q.gpu.major == 9 && too_long_for_mma(p, plan)) return {};
  double slower = 1;
  for (const int bytes : {plan.bytes_a, plan.bytes_b})
    slower += bytes == 16 ? 0 : bytes == 8 ? kMmaElements / 8 : bytes == 4 ? kMmaElements / 4 : kMmaElements;
  const auto wanted = forced_splits(q.forced);
  Least<MmaPlan> least;
  each_tile<MmaTile>(kMmaTiles, q.forced, [&](MmaTile tile, TileInfo t) {
    if (is_tf32(tile) != tf32) return;
    t.block *= q.machine.mma_slower * slower, t.more *= q.machine.mma_slower * slower, plan.tile = tile;
    const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches, blocks = ceil_div(p.k, t.k);
    const auto consider = [&](std::int64_t most) {
      plan.split_blocks = ceil_div(blocks, most), plan.splits = ceil_div(blocks, plan.split_blocks);
      if (wanted && plan.splits != *wanted) return;
      const bool meet = plan.splits > 1;
      const std::int64_t sums = 4 * t.m * t.n;  // bytes of a CTA; written and read, they leave L2 between products
      plan.partial_bytes = meet ? tiles * plan.splits * sums : 0, plan.counter_bytes = meet ? tiles * 8 : 0;
      least.consider(plan, kMmaLaunch + (meet ? kMmaMeeting + q.join(static_cast<double>(sums)) : 0) +
                               q.product(t, tiles, plan.splits, plan.split_blocks * t.k, q.machine.l2_async_bytes) +
                               q.move(2 * static_cast<double>(plan.partial_bytes)));
    };
    constexpr std::int64_t kMostSplits = 512;
    if (wanted) return tf32 && *wanted >= 1 && *wanted <= kMostSplits ? consider(*wanted) : void();
    consider(1);
    for (int ctas = 1; tf32 && ctas <= t.per_sm; ++ctas)  // an SM: CTAs that wait for each other run at the same time
      for (std::int64_t splits = std::min(blocks, q.gpu.sm_count * ctas / tiles); splits > 1; splits /= 2) consider(splits);
  });
  return least.best;
}

std::optional<LargePlan> offer_large(const Question& q) {
  if (!q.legal.large) return {};
  const Problem& p = q.p;
  LargePlan plan{};
  plan.parts = p.dtype == DType::f32 ? split_parts(p.precision) : 0;
  if (q.forced.empty() && plan.parts == 2 && p.k < kLeastSplitK) return {};
  plan.a = place_operand(p, lines_of_a(p), plan.parts > 0, false);
  plan.b = plan.parts > 0 && p.prepared_b ? prepared_operand(p.n, p.k, plan.parts)
                                          : place_operand(p, lines_of_b(p), plan.parts > 0, false);
  const double passes = pass_us(q, lines_of_a(p), plan.a, plan.parts) + pass_us(q, lines_of_b(p), plan.b, plan.parts);
  const std::int64_t sums = 4 * p.m * p.n * p.batches;
  Least<LargePlan> least;
  each_tile<LargeTile>(kLargeTiles, q.forced, [&](LargeTile tile, const TileInfo&) {
    const int parts = std::max(1, plan.parts),
              beside = has_two_parts(tile) == (plan.parts == 2) ? beside_of(q.gpu, tile, parts) : 0;
    if (beside == 0) return;
    plan.tile = tile;
    const TileInfo t = on_device(q, tile, parts, beside);
    const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches,
                       blocks = std::max<std::int64_t>(1, ceil_div(p.k, t.k)), least_splits = ceil_div(blocks, kMostLines / 64);
    for (std::int64_t wanted = least_splits; wanted == least_splits || wanted <= blocks; wanted *= 2) {
      plan.split_blocks = ceil_div(blocks, wanted), plan.splits = ceil_div(blocks, plan.split_blocks);
      plan.partial_bytes = plan.splits > 1 ? plan.splits * sums : 0;
      const double add = plan.splits > 1 ? kNextLaunch + q.move(2 * static_cast<double>(plan.partial_bytes)) : 0;
      least.consider(plan, kNextLaunch + (plan.parts > 0 ? kSplitLaunch : 0) + (passes > 0 ? kNextLaunch + passes : 0) + add +
                               q.product(t, tiles, plan.splits, plan.split_blocks * t.k, q.machine.l2_async_bytes));
      if (p.batch_invariant || plan.splits * tiles > q.gpu.sm_count * beside) break;
    }
  });
  if (!least.best) return {};
  for (TensorOperand* x : {&least.best->a, &least.best->b}) take_copy(q, plan.parts, *x, least.best->workspace_bytes);
  if (plan.parts > 0) least.best->fallback = simt_fallback(p, q.gpu);
  return least.best;
}

std::optional<SlicedPlan> offer_sliced(const Question& q) {
  if (!q.legal.sliced) return {};
  const Problem& p = q.p;
  constexpr std::int64_t kLongestApart = 512;
  Least<SlicedPlan> least;
  for (std::size_t i = 0; i < 2 * kSlicedTiles.size(); ++i) {
    TileInfo t = kSlicedTiles[i / 2];
    const bool apart = i % 2 == 0;
    if (names_a_tile(q.forced) ? q.forced != std::string(t.name) + (apart ? "_apart" : "") : apart && p.k > kLongestApart)
      continue;
    const std::int64_t tiles = ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches;
    if (apart) t.k = kSlicedDepth, t.start *= kApartStart, t.block *= kApartBlock;
    t.more = t.block *= has_quads_by_size(p) ? 1 : kSlicedElements;
    for (std::int64_t splits = 1; splits <= (apart ? 1 : kSlicedMaxSplits); ++splits) {
      if (splits > 1 && ceil_div(p.k, kSlicedDepth) < kSlicedWarps * splits) break;
      const std::int64_t at_once = splits * clusters_at_once(splits, q.gpu.sm_count),
                         ctas = apart ? ceil_div(tiles, kSlicedWarps) : tiles * splits;
      const double joins = splits > 1 ? static_cast<double>(ceil_div(ctas, at_once)) * kSlicedCluster : 0;
      least.consider({static_cast<SlicedTile>(i / 2), tiles, splits, apart, 0},
                     kSlicedLaunch + joins + compute_us(t, ctas, ceil_div(p.k, splits), at_once));
    }
  }
  return least.best;
}

std::optional<Tf32Plan> offer_tf32(const Question& q) {
  if (!q.legal.tf32) return {};
  const Problem& p = q.p;
  Tf32Plan plan{};
  const double copies = place_operands(q, plan);
  Least<Tf32Plan> least;
  each_tile<Tf32Tile>(kTf32Tiles, q.forced, [&](Tf32Tile tile, const TileInfo& t) {
    for (const bool swap_ab : {true, false}) {  // if both are possible, the first is a little faster
      if (!(swap_ab ? plan.a.k_major : plan.b.k_major)) continue;
      plan.tile = tile, plan.swap_ab = swap_ab, plan.blocks = ceil_div(p.k, t.k);
      plan.tiles_x = ceil_div(swap_ab ? p.n : p.m, t.m), plan.tiles_y = ceil_div(swap_ab ? p.m : p.n, t.n);
      if (plan.tiles_x > kMostLines / plan.tiles_y / p.batches / plan.blocks) continue;
      const std::int64_t tiles = plan.tiles_x * plan.tiles_y * p.batches,
                         most = std::clamp<std::int64_t>(q.gpu.sm_count / tiles, 1, plan.blocks);
      for (std::int64_t wanted = 1;; wanted = std::min(2 * wanted, most)) {
        plan.split_blocks = ceil_div(plan.blocks, wanted), plan.splits = ceil_div(plan.blocks, plan.split_blocks);
        plan.ctas = std::min<std::int64_t>(q.gpu.sm_count, tiles * plan.splits);
        std::int64_t levels = 0, adds = 0;  // adds: sequential
        for (std::int64_t sums = plan.splits; sums > 1; sums = ceil_div(sums, kTf32Fan), ++levels)
          adds += std::min<std::int64_t>(sums, kTf32Fan);
        plan.partial_bytes = plan.splits > 1 ? plan.ctas * t.m * t.n * 4 : 0;
        plan.counter_bytes = levels * plan.ctas * (t.m / 64) * 4;
        least.consider(plan,
                       kTf32Launch + copies + static_cast<double>(levels) * kTf32Join +
                           q.join(static_cast<double>(adds * t.m * t.n * 4)) +
                           q.product(t, tiles, plan.splits, plan.split_blocks * t.k, q.machine.l2_tma_bytes, q.stores_of_c()));
        if (wanted == most) break;
      }
    }
  });
  return least.best;
}

std::optional<Bf16x3Plan> offer_bf16x3(const Question& q) {
  constexpr std::int64_t kLeastK = 64;  // of "highest": for a smaller k SGEMM rounds so seldom that truncation would show
  if (!q.legal.bf16x3) return {};
  if (q.forced.empty() && q.p.precision == Precision::highest && q.p.k < kLeastK) return {};
  Least<Bf16x3Plan> least;
  each_tile<Bf16x3Tile>(kBf16x3Tiles, q.forced, [&](Bf16x3Tile tile, const TileInfo& t) {
    Bf16x3Plan plan = bf16x3_plan(q, tile);
    if (plan.tiles > kMostLines / plan.blocks) return;
    each_halving(plan.blocks, [&](std::int64_t units, std::int64_t granule) {
      if (units > 1 && plan.blocks <= kBf16x3Short) return;
      const std::int64_t all = plan.tiles * units, ctas = std::min<std::int64_t>(q.gpu.sm_count, all),
                         most = ceil_div(all, ctas);  // units of the busiest CTA
      const bool shares = units > 1 && all % (ctas * units) != 0;
      const bool even = all == ctas * most && units % most == 0;                         // no CTA has parts of two tiles
      const std::int64_t pieces = even ? units / most : ceil_div(ctas, plan.tiles) + 1;  // of a shared tile
      const double compute =
          static_cast<double>(most * granule) * t.block + static_cast<double>(ceil_div(most, units) + shares) * t.start;
      plan.granule = granule, plan.units = units, plan.ctas = ctas;
      plan.partial_bytes = shares ? 2 * ctas * t.m * kBf16x3Columns * 4 : 0, plan.counter_bytes = shares ? ctas * 16 : 0;
      least.consider(plan, (plan.b_tma() ? 1 : kBf16x3Elements) *
                               (kBf16x3Launch + longest_us(compute, q.memory()) +
                                (shares ? kBf16x3Share + static_cast<double>(bf16x3_reads(t.m, pieces)) * kBf16x3Read : 0)));
    });
  });
  return least.best;
}

std::optional<Bf16x3Plan> plan_bf16x3_fallback(const Question& q) {
  Bf16x3Plan plan = bf16x3_plan(q, Bf16x3Tile::t64x128);
  if (q.p.batch_invariant || q.p.gated || plan.tiles >= std::int64_t{1} << 30) return {};
  plan.granule = plan.blocks, plan.units = 1, plan.ctas = std::min<std::int64_t>(plan.tiles, q.gpu.sm_count);
  return plan;
}

}  // namespace xgemm::matmul
