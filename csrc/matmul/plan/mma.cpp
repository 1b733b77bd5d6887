// The candidate of mma/kernel.cuh, by the rates of the device (machine.h). Costs: as in candidates.cpp.
#include <algorithm>

#include "device/integer.h"
#include "matmul/mma/geometry.h"
#include "matmul/plan/least.h"
#include "matmul/plan/operands.h"
#include "matmul/plan/plan.h"

namespace xgemm::matmul {
namespace {

constexpr double kMmaLaunch = 1.01, kMmaAdd = 0.04;      // a launch; a split's sums, added to those before
constexpr double kMmaStart = 0.27, kMmaStore = 2.23e-5;  // of a CTA; of a byte of C
constexpr double kReached = 0.82, kTwoParts = 0.79;      // shares of the rate; of that with sums in fp32
constexpr double kMmaWait = 0.046, kMmaElements = 1.35;  // of a CTA alone on its SM, a k-block's more; time of loads by element

/// CTAs of a tile that find room on an SM.
int beside_of(const DeviceProperties& gpu, MmaTile tile) {
  constexpr std::size_t kReserved = 1024;  // of a CTA, by the system
  const std::size_t bytes = static_cast<std::size_t>(shared_bytes(tile)) + kReserved;
  return bytes > gpu.smem_per_block ? 0 : std::min(info(tile).per_sm, static_cast<int>(gpu.smem_per_sm / bytes));
}

/// A tile with its costs on this device: a k-block takes the tensor cores' time, or that of shared memory, which delivers the
/// fragments of all warps and receives the slot. `slower`: by loads of unaligned rows.
TileInfo on_device(const Question& q, MmaTile tile, double slower) {
  constexpr double kSharedBytes = 128;  // a clock and SM
  TileInfo t = info(tile);
  const MmaGeometry g = geometry(tile);
  const int size = element_bytes(tile), products = has_two_parts(tile) ? 3 : is_tf32(tile) ? 2 : 1;  // TF32: half the rate
  const double clocks = static_cast<double>(t.m) * t.n * t.k * products / q.machine.mma;
  const double bytes = 1.0 * size * t.k * parts_of(tile) * (g.warps_columns * t.m + g.warps_rows * t.n + t.m + t.n);
  t.start = kMmaStart + kMmaStore * q.size * t.m * t.n;
  t.more = slower * 1e6 / q.machine.clock_hz * std::max(clocks, bytes / kSharedBytes) / kReached;
  if (has_two_parts(tile)) t.more /= kTwoParts;
  t.block = t.more + kMmaWait;
  return t;
}

/// Half precision on Hopper: beyond, or with rows of whole cache lines, which TMA loads best, wgmma is faster.
bool too_long_for_mma(const Problem& p, bool unaligned) {
  constexpr std::int64_t kLongest = 1024, kLongestWhole = 384;
  const bool whole =
      (a_along_k(p) ? p.a.row_stride : p.a.col_stride) % 64 == 0 && (b_along_k(p) ? p.b.col_stride : p.b.row_stride) % 64 == 0;
  return p.k > (unaligned || !whole ? kLongest : kLongestWhole);
}

/// Multiples of bytes that an operand's rows start and end at.
int aligned_bytes(const Problem& p, const OperandLines& x) {
  const auto size = static_cast<int>(size_of(p.dtype));
  return has_vectors(p, x, 16 / size) ? 16 : has_vectors(p, x, 2) ? 2 * size : size;
}

/// Sets a tile's operands and their places; returns the time of their copies.
double place_operands(const Question& q, MmaPlan& plan) {
  const Problem& p = q.p;
  const bool any = takes_any_rows(plan.tile);
  const auto place = [&](const OperandLines& x, TensorOperand& t, int& bytes) {
    bytes = aligned_bytes(p, x);
    if (plan.parts == 0 && (any ? has_unit_stride(x.operand) : bytes == 16)) {
      t = tensor_operand(p, x, static_cast<std::int64_t>(size_of(p.dtype))), t.copied = false;
    } else {
      t = place_operand(p, x, true, false), bytes = 16;
    }
  };
  place(lines_of_a(p), plan.a, plan.bytes_a), place(lines_of_b(p), plan.b, plan.bytes_b);
  if (plan.parts > 0 && p.prepared_b) plan.b = prepared_operand(p.n, p.k, plan.parts);
  const double us = pass_us(q, lines_of_a(p), plan.a, plan.parts) + pass_us(q, lines_of_b(p), plan.b, plan.parts);
  return (plan.parts > 0 ? kSplitLaunch : 0) + (us > 0 ? kNextLaunch + us : 0);
}

}  // namespace

std::optional<MmaPlan> offer_mma(const Question& q, bool all) {
  const Problem& p = q.p;
  const bool fp32 = p.dtype == DType::f32, others = q.gpu.major == 9 && q.forced.empty() && !all;
  const int parts = fp32 ? split_parts(p.precision) : 0;
  const bool may_split = !p.batch_invariant && (fp32 || !others);  // else K is too short to pay for a launch
  constexpr std::int64_t kMostSplits = 512;
  const auto wanted = forced_splits(q.forced);
  Least<MmaPlan> least;
  each_tile<MmaTile>(kMmaTiles, q.forced, [&](MmaTile tile, const TileInfo& of) {
    const int beside = beside_of(q.gpu, tile);
    const bool tf32 = is_tf32(tile), legal = tf32 ? q.legal.mma_tf32 : q.legal.mma && has_two_parts(tile) == (parts == 2);
    if (beside == 0 || !legal || (others && (fp32 ? !tf32 : !takes_any_rows(tile)))) return;
    if (q.forced.empty() && has_two_parts(tile) && p.k < kLeastSplitK) return;
    const std::int64_t rows = ceil_div(p.m, of.m), columns = ceil_div(p.n, of.n), tiles = rows * columns * p.batches,
                       blocks = std::max<std::int64_t>(1, ceil_div(p.k, of.k)),
                       least_splits = ceil_div(blocks, kMostLines / of.k);
    if (rows > kMostLines / columns / p.batches) return;
    MmaPlan plan{};
    plan.tile = tile, plan.parts = tf32 ? 0 : parts;
    const double copies = place_operands(q, plan);
    if (others && !fp32 && too_long_for_mma(p, plan.bytes_a < 16 || plan.bytes_b < 16)) return;
    double slower = 1;
    for (const int bytes : {plan.bytes_a, plan.bytes_b}) slower += bytes == 16 ? 0 : kMmaElements / (bytes == 2 ? 1 : bytes);
    const TileInfo t = on_device(q, tile, slower);
    const auto consider = [&](std::int64_t most) {
      plan.split_blocks = ceil_div(blocks, most), plan.splits = ceil_div(blocks, plan.split_blocks);
      if (wanted && plan.splits != *wanted) return;
      const bool split = plan.splits > 1;
      plan.partial_bytes = split ? 4 * plan.splits * p.m * p.n * p.batches : 0;
      const double add =
          kNextLaunch + static_cast<double>(plan.splits) * kMmaAdd + q.move(2.0 * static_cast<double>(plan.partial_bytes));
      least.consider(plan, kMmaLaunch + copies + (split ? add : 0) +
                               q.product(t, tiles, plan.splits, plan.split_blocks * t.k, q.machine.l2_async_bytes));
    };
    if (wanted) return *wanted >= least_splits && *wanted <= std::min(blocks, kMostSplits) ? consider(*wanted) : void();
    consider(least_splits);
    for (int ctas = 1; may_split && ctas <= beside; ++ctas)  // an SM
      for (std::int64_t splits = std::min(blocks, q.gpu.sm_count * ctas / tiles); splits > least_splits; splits /= 2)
        consider(splits);
  });
  if (!least.best) return {};
  MmaPlan plan = *least.best;
  for (TensorOperand* x : {&plan.a, &plan.b}) take_copy(q, plan.parts, *x, plan.workspace_bytes);
  if (plan.parts > 0) plan.fallback = simt_fallback(p, q.gpu);
  return plan;
}

}  // namespace xgemm::matmul
