// The candidates of all families on tensor cores but wgmma (wgmma.cpp). Costs are microseconds of an H200 under load, fitted to
// benchmarks/results/nvidia_h200/matmul_plans.json (tools/plan_costs) unless a comment says otherwise.
#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/operands.h"
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kMmaMeeting = 2.06;  // mma, tf32, sliced in each wave: CTAs that share a tile's K meet
// mma: more of a k-block for an operand loaded through registers by 2 bytes; by 4 a quarter of it, by 8 an eighth.
constexpr double kMmaElements = 1.17;
constexpr double kTf32UnalignedC = 3.05;  // time of rows of C that begin unaligned, which are stored by element
constexpr double kSlicedElements = 1.2;   // sliced: k-blocks loaded by element relative to quads
// bf16x3: a launch; CTAs that share tiles meet; time of a k-block of up to half of the rows; with element-wise loads of B.
constexpr double kBf16x3Launch = 2.57, kBf16x3Meeting = 8, kBf16x3FewRows = 0.8, kBf16x3Elements = 1.6;

// large, by the rates of the device (machine.h), no time was fitted: of a CTA the first loads and the store of C; shares of the
// rate: an H200 with XGEMM_ARCH=80; of that with sums in fp32.
constexpr double kLargeStart = 2.5, kLargeReached = 0.82, kLargeTwoParts = 0.79;

/// mma: multiples of bytes that an operand's rows start and end at.
int aligned_bytes(const Problem& p, const OperandLines& x) {
  const auto size = static_cast<int>(size_of(p.dtype));
  return has_vectors(p, x, 16 / size) ? 16 : has_vectors(p, x, 2) ? 2 * size : size;
}

/// Sets tf32's operands and their places; returns the time of their copies. Of two MN-major ones the smaller is transposed.
double place_operands(const Question& q, Tf32Plan& plan) {
  const Problem& p = q.p;
  plan.a = tensor_operand(p, lines_of_a(p), 4), plan.b = tensor_operand(p, lines_of_b(p), 4);
  const bool transposes = !plan.a.k_major && !plan.b.k_major, of_a = q.bytes_a < q.bytes_b;
  if (transposes) (of_a ? plan.a : plan.b) = tensor_operand(p, of_a ? lines_of_a(p) : lines_of_b(p), 4, true);
  double us = 0;
  for (TensorOperand* x : {&plan.a, &plan.b}) {
    if (!x->copied) continue;
    place_copy(*x, round_up(x->inner, kTf32TileK));  // rows of whole cache lines
    us = std::max(us, kNextLaunch) + q.move(8 * static_cast<double>(x->plane * x->batches));
    x->copy = reserve(plan.workspace_bytes, 4 * x->plane * x->batches);
  }
  return us;
}

Bf16x3Plan bf16x3_plan(const Question& q) {
  Bf16x3Plan plan{};
  plan.b = tensor_operand(q.p, lines_of_b(q.p), 4), plan.a_vectors = q.quads_a;
  plan.tiles = q.tiles(kBf16x3Tiles[0]), plan.blocks = ceil_div(q.p.k, kBf16x3Block);
  plan.granule = plan.blocks, plan.units = 1, plan.ctas = std::min<std::int64_t>(plan.tiles, q.gpu.sm_count);
  return plan;
}

/// A tile of large with its costs on this device: as many CTAs of an SM as find room; a k-block takes the tensor cores' time, or
/// that of shared memory, which delivers the fragments of all warps and receives the slot.
TileInfo on_device(const Question& q, LargeTile tile, int parts) {
  constexpr double kSharedBytes = 128;     // a clock and SM
  constexpr std::size_t kReserved = 1024;  // of a CTA, by the system
  TileInfo t = info(tile);
  const MmaGeometry g = geometry(tile);
  const std::size_t room = static_cast<std::size_t>(g.slots * large_slot_bytes(tile, parts)) + kReserved;
  const double clocks = static_cast<double>(t.m) * t.n * t.k * (parts == 2 ? 3 : 1) / q.machine.rates.mma;
  const double bytes = 2.0 * t.k * parts * (g.warps_columns * t.m + g.warps_rows * t.n + t.m + t.n);
  t.per_sm = room > q.gpu.smem_per_block ? 0 : std::min(t.per_sm, static_cast<int>(q.gpu.smem_per_sm / room));
  t.start = kLargeStart;
  t.block = t.more = 1e6 / q.machine.clock_hz * std::max(clocks, bytes / kSharedBytes) / kLargeReached;
  if (parts == 2) t.slow_down(1 / kLargeTwoParts);
  return t;
}

}  // namespace

std::optional<Fp64Plan> offer_fp64(const Question& q) {
  if (!q.legal.fp64) return {};
  const Problem p = fp64_problem(q.p);
  const std::int64_t blocks = std::max<std::int64_t>(1, ceil_div(p.k, kFp64TileK)),
                     unit = p.batch_invariant ? fp64_segment(p.n, p.k) : 1;
  Least<Fp64Plan> least;
  each_tile<Fp64Tile>(kFp64Tiles, q.forced, [&](Fp64Tile tile, TileInfo t) {
    t.slow_down(q.machine.slower(&ArchitectureRates::mma_f64));
    const std::int64_t rows = ceil_div(p.m, t.m), columns = ceil_div(p.n, t.n), tiles = rows * columns * p.batches;
    if (rows > kMostLines / columns / p.batches) return;
    each_split(q, ceil_div(blocks, unit), tiles, kMostWaves, [&](std::int64_t splits, std::int64_t units) {
      const std::int64_t of_cta = std::min(blocks, units * unit), segment = p.batch_invariant ? unit : of_cta,
                         segments = ceil_div(blocks, segment), sums = 8 * p.m * p.n * p.batches;
      if (p.batch_invariant && segments > 1 && !has_totals(tile)) return;
      least.consider({tile, blocks, segment, of_cta, splits, splits > 1 ? sums * segments : 0, 0},
                     kLaunch + q.product(t, tiles, splits, of_cta * kFp64TileK) + q.add_by_launch(splits, sums));
    });
  });
  return least.best;
}

std::optional<MmaPlan> offer_mma(const Question& q) {
  if (!q.legal.mma) return {};
  const Problem& p = q.p;
  const bool tf32 = p.dtype == DType::f32;
  constexpr std::int64_t kLongest = 1024;  // of half precision: beyond, wgmma is faster
  if (!tf32 && q.forced.empty() && q.hopper && p.k > kLongest) return {};
  MmaPlan plan{};
  plan.bytes_a = aligned_bytes(p, lines_of_a(p)), plan.bytes_b = aligned_bytes(p, lines_of_b(p));
  double slower = 1;
  for (const int bytes : {plan.bytes_a, plan.bytes_b}) slower += bytes == 16 ? 0 : kMmaElements / (bytes == 2 ? 1 : bytes);
  Least<MmaPlan> least;
  each_tile<MmaTile>(kMmaTiles, q.forced, [&](MmaTile tile, TileInfo t) {
    if (is_tf32(tile) != tf32) return;
    t.slow_down(q.machine.slower(&ArchitectureRates::mma) * slower), plan.tile = tile;
    const std::int64_t tiles = q.tiles(t), sums = 4 * t.m * t.n;  // bytes of a CTA
    // CTAs that wait for each other run at the same time.
    each_split(q, ceil_div(p.k, t.k), tiles, tf32 ? t.per_sm : 0, [&](std::int64_t splits, std::int64_t each) {
      plan.splits = splits, plan.split_blocks = each;
      plan.partial_bytes = splits > 1 ? tiles * splits * sums : 0, plan.counter_bytes = splits > 1 ? tiles * 8 : 0;
      least.consider(plan, kLaunch + q.product(t, tiles, splits, each * t.k) +
                               q.add_by_meeting(kMmaMeeting, splits, static_cast<double>(sums)) +
                               q.move(2 * static_cast<double>(plan.partial_bytes)));
    });
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
  const double passes = pass_us(q, lines_of_a(p), plan.a, plan.parts) + pass_us(q, lines_of_b(p), plan.b, plan.parts),
               launches = kNextLaunch + (plan.parts > 0 ? kSplitLaunch : 0) + (passes > 0 ? kNextLaunch + passes : 0);
  Least<LargePlan> least;
  each_tile<LargeTile>(kLargeTiles, q.forced, [&](LargeTile tile, const TileInfo&) {
    const TileInfo t = on_device(q, tile, std::max(1, plan.parts));
    if (has_two_parts(tile) != (plan.parts == 2) || t.per_sm == 0) return;
    plan.tile = tile;
    const std::int64_t tiles = q.tiles(t), blocks = std::max<std::int64_t>(1, ceil_div(p.k, t.k)),
                       sums = 4 * p.m * p.n * p.batches;
    for (std::int64_t wanted = ceil_div(blocks, kMostLines / 64);; wanted *= 2) {
      plan.split_blocks = ceil_div(blocks, wanted), plan.splits = ceil_div(blocks, plan.split_blocks);
      plan.partial_bytes = plan.splits > 1 ? plan.splits * sums : 0;
      least.consider(plan,
                     launches + q.product(t, tiles, plan.splits, plan.split_blocks * t.k) + q.add_by_launch(plan.splits, sums));
      if (p.batch_invariant || plan.split_blocks == 1 || plan.splits * tiles > q.gpu.sm_count * t.per_sm) break;
    }
  });
  if (!least.best) return {};
  take_copies(q, plan.parts, {&least.best->a, &least.best->b}, least.best->workspace_bytes);
  if (plan.parts > 0) least.best->fallback = simt_fallback(p, q.gpu);
  return least.best;
}

std::optional<SlicedPlan> offer_sliced(const Question& q) {
  if (!q.legal.sliced) return {};
  const Problem& p = q.p;
  Least<SlicedPlan> least;
  each_tile<std::size_t>(kSlicedTiles, q.forced, [&](std::size_t row, TileInfo t) {
    constexpr std::int64_t kLongestApart = 2048;  // beyond, eight warps that share a tile's k are faster
    const bool apart = row >= kSlicedTiles.size() / 2;
    if (apart && p.k > kLongestApart && !names_a_tile(q.forced)) return;
    t.slow_down(has_quads_by_size(p) ? 1 : kSlicedElements);
    for (std::int64_t splits = 1; splits <= (apart ? 1 : kSlicedMaxSplits); ++splits) {
      if (splits > 1 && ceil_div(p.k, kSlicedDepth) < kSlicedWarps * splits) break;
      const std::int64_t tiles = q.tiles(t), ctas = apart ? ceil_div(tiles, kSlicedApartWarps) : tiles * splits,
                         at_once = splits * clusters_at_once(splits, q.gpu.sm_count);
      least.consider({static_cast<SlicedTile>(row % (kSlicedTiles.size() / 2)), tiles, splits, apart, 0},
                     kLaunch + compute_us(t, ctas, ceil_div(p.k, splits), at_once) +
                         static_cast<double>(ceil_div(ctas, at_once)) * q.add_by_meeting(kMmaMeeting, splits, 0));
    }
  });
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
      const std::int64_t tiles = plan.tiles_x * plan.tiles_y * p.batches, sums = 4 * t.m * t.n;
      each_split(q, plan.blocks, tiles, t.per_sm, [&](std::int64_t splits, std::int64_t each) {
        plan.splits = splits, plan.split_blocks = each, plan.ctas = std::min<std::int64_t>(q.gpu.sm_count, tiles * splits);
        plan.partial_bytes = splits > 1 ? plan.ctas * sums : 0, plan.counter_bytes = splits > 1 ? tiles * (t.m / 64) * 8 : 0;
        least.consider(plan, kLaunch + copies +
                                 q.product(t, tiles, splits, each * t.k, true, p.n % 4 == 0 ? 1 : kTf32UnalignedC) +
                                 q.add_by_meeting(kMmaMeeting, splits, static_cast<double>(2 * sums)));
      });
    }
  });
  return least.best;
}

std::optional<Bf16x3Plan> offer_bf16x3(const Question& q) {
  constexpr std::int64_t kLeastK = 64;  // of "highest": for a smaller k SGEMM rounds so seldom that truncation would show
  if (!q.legal.bf16x3) return {};
  if (q.forced.empty() && q.p.precision == Precision::highest && q.p.k < kLeastK) return {};
  Bf16x3Plan plan = bf16x3_plan(q);
  TileInfo t = kBf16x3Tiles[0];
  t.slow_down((2 * q.p.m <= t.m ? kBf16x3FewRows : 1) * (plan.b_tma() ? 1 : kBf16x3Elements));
  if (plan.tiles > kMostLines / plan.blocks) return {};
  Least<Bf16x3Plan> least;
  // Units of all k-blocks, of half of them, ...: a CTA takes as many of the sequence of all tiles' units as every other.
  for (; plan.granule > 0; plan.granule = plan.granule == 1 || plan.blocks <= kBf16x3Short ? 0 : ceil_div(plan.granule, 2)) {
    plan.units = ceil_div(plan.blocks, plan.granule);
    const std::int64_t all = plan.tiles * plan.units,
                       most = ceil_div(all, plan.ctas = std::min<std::int64_t>(q.gpu.sm_count, all));
    const bool shares = plan.units > 1 && all % (plan.ctas * plan.units) != 0;
    const bool within = all == most * plan.ctas && plan.units % most == 0;  // one tile: no CTA ends a tile and begins another
    plan.partial_bytes = shares ? 2 * plan.ctas * t.m * kBf16x3Columns * 4 : 0, plan.counter_bytes = shares ? plan.ctas * 16 : 0;
    const double starts = static_cast<double>(ceil_div(most, plan.units) + (shares && !within)),
                 compute = static_cast<double>(most * plan.granule) * t.block + starts * t.start;
    least.consider(plan, kBf16x3Launch + longest_us(compute, q.memory()) + (shares ? kBf16x3Meeting : 0));
  }
  return least.best;
}

std::optional<Bf16x3Plan> plan_bf16x3_fallback(const Question& q) {
  Bf16x3Plan plan = bf16x3_plan(q);
  if (q.p.batch_invariant || q.p.gated || plan.tiles >= std::int64_t{1} << 30) return {};
  return plan;
}

}  // namespace xgemm::matmul
