#include "matmul/wgmma/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/gemv/plan.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/roofline.h"

namespace xgemm::matmul {
namespace {

// Microseconds.
constexpr double kLaunch = 1.6;       // half precision: everything but the tiles
constexpr double kSplitLaunch = 2.8;  // of each: a pass over an operand, the product, the fallback
constexpr double kSingles = 1.74;     // the pass with single elements, relative to quads
// few_rows.cuh: everything but its slots; of 128 k, and more for each row; with lines along n that begin equally aligned.
constexpr double kFewRowsStart = 2.44, kSlot = 0.286, kSlotRow = 0.00186, kSlotAligned = 1.77;

/// `copied`: pack it in any case. `along_k`: the kernel needs it contiguous along k.
TensorOperand place(const Problem& p, const OperandLines& x, bool copied, bool along_k) {
  TensorOperand t = tensor_operand(p, x, 2, along_k);
  constexpr std::int64_t kFewLines = 64;  // a box along few lines is mostly out of bounds
  if (is_half(p.dtype) && t.copied && x.count <= kFewLines) t = tensor_operand(p, x, 2, true);
  // Rows of a copy are whole cache lines: a box whose rows straddle two takes up to twice as long.
  if (copied || t.copied) place_copy(t, round_up(t.inner, t.inner > 64 ? 64 : 8));
  return t;
}

/// The pass that splits an operand, or packs it.
double pass_us(const Problem& p, const OperandLines& x, const TensorOperand& t, int parts, const Machine& machine) {
  if (t.prepared || !t.copied) return 0;
  const auto elements = static_cast<double>(t.inner * t.other * t.batches);
  if (parts == 0) return 1e6 * 4 * elements / machine.read_bytes;
  return kSplitLaunch + 1e6 * (has_vectors(p, x, 4) ? 1 : kSingles) * (4 + 2 * parts) * elements /
                            (t.k_major ? machine.read_bytes : machine.strips_bytes);
}

/// Half precision: the fastest choice, with operands that straddle cache lines packed where that pays.
double choose_half(const Problem& p, std::int64_t splits, const Machine& machine, std::string_view forced, WgmmaPlan& plan,
                   WgmmaChoice& choice) {
  double least = 1e30;
  const TensorOperand a = plan.a, b = plan.b;
  for (int copies = 0; copies < (p.gated ? 1 : 4); ++copies) {
    const TensorOperand x = copies & 1 ? place(p, lines_of_a(p), true, false) : a,
                        y = copies & 2 ? place(p, lines_of_b(p), true, false) : b;
    const WgmmaChoice other = fastest_wgmma(p, 0, x, y, splits, machine, forced);
    const double passes = pass_us(p, lines_of_a(p), x, 0, machine) + pass_us(p, lines_of_b(p), y, 0, machine) +
                          (p.gated ? pass_us(p, lines_of_up(p), plan.up, 0, machine) : 0),
                 us = kLaunch + other.us + passes + (passes > 0 ? kNextLaunch : 0);
    if (us < least) least = us, choice = other, plan.a = x, plan.b = y;
  }
  return least;
}

bool can_read_b_as_it_lies(const Problem& p, const WgmmaPlan& plan) {
  constexpr std::int64_t kRows = 128, kEqual = 8;  // lines so far apart begin equally aligned, and so must matrices
  const std::int64_t along = plan.b.k_major ? p.b.row_stride : p.b.col_stride,
                     across = plan.b.k_major ? p.b.col_stride : p.b.row_stride, matrix = p.b.batch_stride[0];
  return plan.parts == 0 && !p.gated && p.m <= kRows && along == 1 && across >= plan.b.inner && plan.b.other >= kEqual &&
         (!plan.b.batch_step || (p.batch_dims == 1 && matrix > 0 && matrix % kEqual == 0));
}

/// few_rows.cuh: pairs of CTAs with 64 columns, or a cluster of `splits`.
double few_rows_us(const Problem& p, const WgmmaPlan& plan, std::int64_t splits, int sm_count) {
  const bool cut = splits > 1, aligned = !plan.b.k_major && p.b.row_stride % 8 == 0;
  const double slot = (aligned ? kSlotAligned : 1) * (kSlot + kSlotRow * static_cast<double>(p.m)) * (cut ? 1.5 : 1);
  const std::int64_t tiles = ceil_div(p.n, 64) * p.batches * (cut && p.m > 8 ? 2 : 1),
                     waves = ceil_div(tiles, cut ? clusters_at_once(splits, sm_count) : std::max(1, sm_count / 2)),
                     each = std::min(p.k, split_blocks(p.k, splits) * kWgmmaTileK);
  return kFewRowsStart + (plan.a.copied ? kNextLaunch : 0) + (cut ? kNextLaunch : 0) +
         static_cast<double>(waves) * (static_cast<double>(ceil_div(each, 128)) * slot) +
         static_cast<double>(waves - 1) * kFewRowsStart;
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

std::optional<WgmmaPlan> plan_wgmma(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const bool fp32 = p.dtype == DType::f32;
  if (!serves_wgmma(p, gpu) || leaves_out_family(forced, "wgmma")) return {};
  const Machine machine = machine_of(gpu);
  WgmmaPlan plan{};
  plan.parts = fp32 ? split_parts(p.precision) : 0;
  if (forced.empty() && !fp32 && (p.n < 8 || p.k < 16)) return {};  // too little for the tensor cores' tiles, whatever M is
  // For smaller K, a product's own error (2^-22) shows next to the rounding of SGEMM's sum; and one lossy element, which one in
  // 500 lines of normal data has, fails a line of so short a K. Three bf16 parts have no lossy elements.
  const bool alone = p.batch_invariant || p.gated || p.prepared_b;
  if (forced.empty() && plan.parts == 2 && p.k < (alone ? 128 : 256)) return {};
  plan.a = place(p, lines_of_a(p), fp32, p.gated);
  plan.b = fp32 && p.prepared_b ? prepared_operand(p.n, p.k, plan.parts) : place(p, lines_of_b(p), fp32, p.gated);
  if (p.gated) plan.up = place(p, lines_of_up(p), fp32, p.gated);
  const std::int64_t splits = p.gated ? 1 : !p.batch_invariant ? 0 : fp32 ? 1 : invariant_splits(p.n, p.k);
  WgmmaChoice choice;
  double us = 0;
  const auto choose = [&](std::string_view name) {
    if (!fp32) return us = choose_half(p, splits, machine, name, plan, choice), choice.us < 1e30;
    choice = fastest_wgmma(p, plan.parts, plan.a, plan.b, splits, machine, name);
    us = 2 * kSplitLaunch + choice.us + pass_us(p, lines_of_a(p), plan.a, plan.parts, machine) +
         pass_us(p, lines_of_b(p), plan.b, plan.parts, machine) +
         (p.gated ? pass_us(p, lines_of_up(p), plan.up, plan.parts, machine) : 0);
    return choice.us < 1e30;
  };
  if (!choose(forced) && !choose({})) return {};  // the named tile cannot do it
  if (can_read_b_as_it_lies(p, plan) && (forced == "wgmma_few_rows" || (forced.empty() && plan.b.copied))) {
    for (std::int64_t cut = std::max<std::int64_t>(1, splits); cut <= (splits ? splits : kMaxCluster); cut *= 2) {
      if (cut > kMaxCluster || (cut - 1) * split_blocks(p.k, cut) * kWgmmaTileK >= p.k) break;
      const double few = few_rows_us(p, plan, cut, gpu.sm_count);
      if (few >= us && !(forced == "wgmma_few_rows" && !plan.b_as_it_lies)) continue;
      us = few, plan.b_as_it_lies = true;
      choice = {.tile = WgmmaTile::t64x64, .splits = cut, .cluster = cut, .columns = info(WgmmaTile::t64x64).n};
    }
    if (plan.b_as_it_lies) plan.b = tensor_operand(p, lines_of_b(p), 2), plan.b.copied = false;
    if (plan.b_as_it_lies) plan.a = place(p, lines_of_a(p), false, true);
  }
  plan.seconds = 1e-6 * us;
  plan.tile = choice.tile, plan.splits = choice.splits, plan.columns = choice.columns;
  plan.cluster = choice.cluster, plan.memory_splits = choice.memory_splits, plan.multicast = choice.multicast;
  plan.chunk = plan.split_length = split_blocks(p.k, plan.splits) * kWgmmaTileK;
  if (plan.parts == 2) {  // about 1024, or 1/32 of K: both levels of sums stay short
    const std::int64_t chunks = std::max<std::int64_t>(1, plan.split_length / std::max<std::int64_t>(1024, p.k / 32));
    plan.chunk = round_up(ceil_div(plan.split_length, chunks), kWgmmaTileK);
  }
  const auto fallback = [&](Problem r) {  // the product on CUDA cores, whose launch must be short if nothing failed
    r.precision = Precision::ieee;
    // For few rows gemv would be faster, but it computes whole products only.
    SimtPlan simt = plan_simt(r, gpu, std::min(r.m, r.n) <= kGemvLines ? info(SimtTile::t16x128).name : "");
    simt.splits = 1, simt.workspace_bytes = 0;
    return simt;
  };
  if (fp32) plan.fallback = fallback(p);
  if (fp32 && p.gated) plan.fallback_up = fallback(up_product(p, nullptr));

  const auto take = [&](std::int64_t size) { return reserve(plan.workspace_bytes, size); };
  for (TensorOperand* x : {&plan.a, &plan.b, &plan.up}) {
    if (!x->copied || x->prepared) continue;  // a copy made before, or no operand
    x->copy = take(2 * std::max(1, plan.parts) * x->plane * x->batches);
    if (fp32) x->stats = take(16 * (x->k_major ? x->other : x->inner) * x->batches);
  }
  if (fp32 && (plan.fallback_bf16x3 = plan_bf16x3_fallback(p, gpu.sm_count))) {
    plan.list = take(4 * bf16x3_list_words(*plan.fallback_bf16x3));
    plan.counter_bytes = std::int64_t{sizeof(FailedLines)};
  }
  if (plan.memory_splits > 1) {
    const std::int64_t tiles = ceil_div(p.m, info(plan.tile).m) * ceil_div(p.n, plan.columns) * p.batches;
    plan.partial_bytes = tiles * plan.memory_splits * info(plan.tile).m * info(plan.tile).n * 4;
    plan.counter_bytes = tiles * 8;
  }
  return plan;
}

}  // namespace xgemm::matmul
