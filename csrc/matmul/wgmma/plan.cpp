#include "matmul/wgmma/plan.h"

#include <algorithm>
#include <numeric>

#include "device/integer.h"
#include "matmul/gemv/plan.h"
#include "matmul/machine.h"
#include "matmul/wgmma/tile_plan.h"

namespace xgemm::matmul {
namespace {

// Seconds beside machine.h and tile_plan.cpp, fitted to runs of all tiles (docs/log/matmul.md, "Half precision: shapes that
// cuBLAS was ahead in", "Few rows, half precision: waves").
constexpr double kSplitLaunches = 8.64e-6;  // the passes over fp32 operands and the one over failed elements
constexpr double kLaunch = 2.5e-6;
constexpr double kHalfStart = 1.7e-6, kHalfCopies = 2.4e-6;  // half precision: everything but the tiles; packing

// few_rows.cuh, seconds: per slot of 128 k, by the most rows, or in a split; then per product, copy of A and cluster.
constexpr double kSlot16 = 0.28e-6, kSlot32 = 0.37e-6, kSlot64 = 0.38e-6, kSlot128 = 0.41e-6, kSlotSplit = 0.50e-6;
constexpr double kFewRowsStart = 2.3e-6, kFewRowsCopy = 2.0e-6, kFewRowsCluster = 4e-6;
constexpr double kFewRowsNext = 3.0e-6;  // per further wave
// B along n, relative to along k: by the most rows; lines equally aligned, whose elements lie in the same banks.
constexpr double kSlotAcross16 = 0.95, kSlotAcross32 = 0.8, kSlotAcross = 1.3, kSlotAcrossAligned = 2;

// The pass that splits fp32 operands: time with single elements, relative to quads, in one and in two parts.
constexpr double kSinglesOnePart = 1.46, kSinglesTwoParts = 1.28;
constexpr double kOnePart = 1.18;           // corrects the model's time of one part, measured against tf32/kernel.cuh
constexpr double kCopyPays = 0.97;          // a copy must take less than this share of the time without it
constexpr double kUnalignedFp32 = 2.5e-12;  // per element of C, if its rows are no multiple of 16 bytes and K is short
constexpr std::int64_t kShortK = 1024;      // longer K hides these stores

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
double half_seconds(const Problem& p, const WgmmaTileChoice& choice, const TensorOperand& a, const TensorOperand& b,
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
               across = p.b.row_stride % 8 == 0 ? kSlotAcrossAligned
                        : p.m <= 16             ? kSlotAcross16
                        : p.m <= 32             ? kSlotAcross32
                                                : kSlotAcross,
               slot = plan.b.k_major ? along : across * along;
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
double fp32_seconds(const WgmmaPlan& plan, const Problem& p, const WgmmaTileChoice& choice, const Machine& machine) {
  const auto elements = [&](const TensorOperand& x, std::int64_t lines) {
    return static_cast<double>(lines * (x.batch_step ? p.batches : 1)) * static_cast<double>(p.k);
  };
  const auto passes = [&](const TensorOperand& x, std::int64_t lines, bool vectors) {
    if (x.prepared) return 0.0;
    const double slower = vectors ? 1 : plan.parts == 1 ? kSinglesOnePart : kSinglesTwoParts;
    return slower * (4.0 + 2 * plan.parts) * elements(x, lines) / (x.k_major ? machine.split_bytes : machine.split_strip_bytes);
  };
  const double bytes = 2 * plan.parts * (elements(plan.a, p.m) + elements(plan.b, p.n)) +
                       4.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches);
  const double products = choice.cycles / machine.hertz_wgmma, memory = bytes / machine.wgmma_bytes;
  const double launches = plan.b.prepared ? kSplitLaunches - kLaunch : kSplitLaunches;
  const double seconds = std::max(products, memory) + kLaunch + launches + passes(plan.a, p.m, has_vectors(p, lines_of_a(p), 4)) +
                         passes(plan.b, p.n, has_vectors(p, lines_of_b(p), 4)) +
                         (p.gated ? passes(plan.up, p.n, has_vectors(p, lines_of_b(p), 4)) : 0) +
                         (p.n % 4 != 0 && p.k <= kShortK ? kUnalignedFp32 * static_cast<double>(p.m * p.n * p.batches) : 0);
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
  // From 513 columns on only if k is long: parts cost many rows 6 to 15 % (docs/log/matmul.md), few rows gain up to 1 us.
  const std::int64_t most = n <= 512 ? kMaxCluster : n <= 1024 && k > 4096 ? 4 : 1;  // few clusters of 8 run at once
  while (splits < most && k >= 1536 * splits && ceil_div(n, 32) * splits * 2 <= 132) splits *= 2;
  while (splits > 1 && (splits - 1) * split_blocks(k, splits) * kWgmmaTileK >= k) splits /= 2;  // no empty split
  return splits;
}

std::optional<WgmmaPlan> plan_wgmma(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const bool fp32 = p.dtype == DType::f32, any = forced.starts_with("wgmma");
  if (gpu.major != 9 || (!fp32 && !is_half(p.dtype)) || p.k < 1 || p.m < 1 || p.n < 1) return {};
  if (!forced.empty() && !any) return {};
  if (fp32 && p.precision == Precision::ieee) return {};
  if (p.m > kMostLines || p.n > kMostLines || p.k > 8'000'000 || p.batches * std::max(p.m, p.n) > kMostLines ||
      ceil_div(p.m, 64) * ceil_div(p.n, 32) * p.batches > kMostLines)
    return {};
  if (fp32 && p.batches > kMostLines / 16) return {};  // else parts of matrices and blocks of split_columns() would exceed 2^31

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
    const WgmmaTileChoice choice = choose_tile(plan.parts, b.k_major, p, splits, gpu.sm_count, forced, lines_a, lines_b);
    if (choice.cycles < 1e30) return choice;
    return choose_tile(plan.parts, b.k_major, p, splits, gpu.sm_count, {}, lines_a, lines_b);  // the named tile cannot do it
  };
  WgmmaTileChoice choice = choose_for(plan.a, plan.b);
  if (!fp32 && !p.gated) {  // rows that straddle cache lines: pack them if that pays
    const TensorOperand as_they_lie[2] = {plan.a, plan.b};
    double least = half_seconds(p, choice, plan.a, plan.b, machine);
    for (int copies = 1; copies < 4; ++copies) {
      TensorOperand x[2] = {as_they_lie[0], as_they_lie[1]};
      if (((copies & 1) && lines_a_row(x[0]) == 1) || ((copies & 2) && lines_a_row(x[1]) == 1)) continue;
      if (copies & 1) x[0] = place(p, lines_of_a(p), true, false);
      if (copies & 2) x[1] = place(p, lines_of_b(p), true, false);
      const WgmmaTileChoice other = choose_for(x[0], x[1]);
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
      plan.seconds = fp32_seconds(many, q, choose_tile(plan.parts, plan.b.k_major, q, splits, gpu.sm_count, {}), machine);
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

  const auto take = [&](std::int64_t size) { return reserve(plan.workspace_bytes, size); };
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
  return plan;
}

}  // namespace xgemm::matmul
