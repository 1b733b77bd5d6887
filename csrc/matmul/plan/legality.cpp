// What a family can compute, whatever the time; and the names that force a plan.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <string>
#include <vector>

#include "device/integer.h"
#include "matmul/gemv/plan.h"
#include "matmul/plan/machine.h"
#include "matmul/plan/roofline.h"
#include "matmul/plan/tiles.h"

namespace xgemm::matmul {
namespace {

/// fp32 on Hopper's tensor cores by kernels whose order of additions depends on M, and which split operands themselves.
bool serves_fp32(const Problem& p) {
  return p.dtype == DType::f32 && p.precision != Precision::ieee && !p.batch_invariant && !p.gated && !p.prepared_b;
}

bool serves_wgmma(const Problem& p) {
  const bool fp32 = p.dtype == DType::f32;
  if (!(fp32 ? p.precision != Precision::ieee : is_half(p.dtype)) || p.k > 8'000'000) return false;
  if (p.batches * std::max(p.m, p.n) > kMostLines || ceil_div(p.m, 64) * ceil_div(p.n, 32) * p.batches > kMostLines) return false;
  return !fp32 || p.batches <= kMostLines / 16;  // matrices of parts and blocks of split_columns() stay below 2^31
}

bool serves_mma(const Problem& p) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 30) - 4096;  // bytes of a row in 32 bits
  const bool typed = is_half(p.dtype) || (serves_fp32(p) && p.precision != Precision::highest);
  return typed && !p.gated && !p.wide_out && !p.factor && std::max({p.m, p.n, p.k}) < kLimit &&
         ceil_div(p.m, 16) * ceil_div(p.n, 32) < kLimit / p.batches && (p.a.row_stride == 1 || p.a.col_stride == 1) &&
         (p.b.row_stride == 1 || p.b.col_stride == 1);
}

/// The same by kernels that count in 32 bits, with so many tiles of a matrix.
bool serves_short_fp32(const Problem& p, std::int64_t tiles) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 4096, kTiles = std::int64_t{1} << 27;
  const auto steps = [](const Operand& x) {
    return std::min(x.row_stride, x.col_stride) >= 0 && std::max(x.row_stride, x.col_stride) < kLimit / 4;
  };
  return serves_fp32(p) && std::max({p.m, p.n, p.k}) < kLimit && steps(p.a) && steps(p.b) && tiles < kTiles / p.batches;
}

bool serves_sweep(const Problem& p) {
  const bool of_b = sweep_streams_b(p), of_a = p.n <= kGemvLines && p.a.row_stride == 1;
  const std::int64_t lines = of_b ? p.n : p.m;
  return (of_b || of_a) && lines >= 32 && serves_short_fp32(p, ceil_div(lines, kSweepColumns));
}

bool serves_dot(const Problem& p) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  return p.dtype == DType::f32 && !p.batch_invariant && p.k > 0 && p.k < kLimit &&
         (dot_streams_b(p) || (p.n <= kGemvLines && a_along_k(p))) && std::max(p.m, p.n) < kLimit / p.batches;
}

bool serves_outputs(const Problem& p) {
  constexpr std::int64_t kGrid = (1 << 16) - 1;  // of rows and batches
  const bool ieee = p.dtype == DType::f32 && p.precision == Precision::ieee;
  return !p.batch_invariant && !ieee && !p.factor && !p.wide_out && !p.gated && !p.prepared_b && p.k >= 1 && p.m <= kGrid &&
         p.batches <= kGrid && p.n < kMostLines / kMaxCluster;
}

std::vector<std::string_view> all_names() {
  std::vector<std::string_view> names{"gemv", "dot",   "sweep", "outputs", "simt",  "sliced",        "fp64",
                                      "mma",  "large", "tf32",  "bf16x3",  "wgmma", "wgmma_few_rows"};
  const auto add = [&](const auto& tiles) { std::ranges::transform(tiles, std::back_inserter(names), &TileInfo::name); };
  add(kSimtTiles), add(kSlicedTiles), add(kFp64Tiles), add(kMmaTiles);
  add(kLargeTiles), add(kTf32Tiles), add(kBf16x3Tiles), add(kWgmmaTiles);
  return names;
}

}  // namespace

Legal legal(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  const auto asked = [&](std::string_view family) { return forced.empty() || forced.starts_with(family); };
  const bool simt = forced == "simt";
  const bool short_lines = std::min(p.m, p.n) >= 1 && std::max(p.m, p.n) <= kMostLines, hopper = gpu.major == 9 && short_lines,
             rounded = !p.factor && !p.wide_out,  // results that every family stores
      any_k = hopper && p.k >= 1 && rounded, tma = any_k && p.k <= kMostLines,
             sliced = any_k && serves_short_fp32(p, ceil_div(p.m, 32) * ceil_div(p.n, 32));
  return {
      .gemv = std::min(p.m, p.n) <= kGemvLines && !is_half(p.dtype) && (simt || asked("gemv")),
      // Up to kDotShort dot keeps the errors of all products: for two to four lines sliced has been faster.
      .dot = (simt || asked("dot")) && serves_dot(p) && !(forced.empty() && sliced && p.k <= kDotShort && std::min(p.m, p.n) > 1),
      .sweep = asked("sweep") && any_k && serves_sweep(p),
      .outputs = asked("outputs") && serves_outputs(p) && (is_half(p.dtype) || 2 * rates_of(gpu).fma_f64 >= rates_of(gpu).fma),
      .simt = forced.empty() ? !sliced : asked("simt"),  // sliced has been faster for every shape
      .fp64 = asked("fp64") && short_lines && p.dtype == DType::f64 && p.k <= kMostLines && rates_of(gpu).mma_f64 > 0 &&
              (p.n > kGemvLines || !p.batch_invariant),  // gemv's order of additions does not depend on M either
      .mma = asked("mma") && short_lines && p.k >= 1 && serves_mma(p),
      .large = asked("large") && !p.gated && p.batches <= kMostLines && (is_half(p.dtype) || serves_wgmma(p)),
      .sliced = asked("sliced") && sliced,
      .tf32 = asked("tf32") && tma && serves_fp32(p) && p.precision != Precision::highest,
      .bf16x3 = asked("bf16x3") && tma && serves_fp32(p),
      .wgmma = asked("wgmma") && any_k && serves_wgmma(p)};
}

bool names_a_tile(std::string_view forced) { return forced.find('_') != forced.npos; }

bool leaves_out_tile(std::string_view forced, std::string_view tile) {
  return names_a_tile(forced) && forced.substr(0, forced.find('/')) != tile;
}

std::optional<std::int64_t> forced_splits(std::string_view forced) {
  const auto slash = forced.find('/');
  if (slash == forced.npos) return {};
  std::int64_t splits = 0;
  const auto [end, error] = std::from_chars(forced.data() + slash + 1, forced.data() + forced.size(), splits);
  return error == std::errc() && end == forced.data() + forced.size() ? splits : 0;
}

bool is_plan_name(std::string_view forced) {
  const std::string_view tile = forced.substr(0, forced.find('/'));
  const auto names = all_names();
  const bool cuts = tile.starts_with("fp64_") || tile.starts_with("mma_tf32_");
  const bool swaps = tile.starts_with("wgmma") && forced == std::string(tile) + "/swapped";
  return std::ranges::find(names, tile) != names.end() && (tile == forced || swaps || (cuts && forced_splits(forced) > 0));
}

std::string plan_names() {
  std::string text;
  for (const std::string_view name : all_names()) (text += text.empty() ? "" : ", ") += name;
  return text +
         " (fp64_<tile>/<splits> and mma_tf32_<tile>/<splits> also say the number of splits, wgmma_<tile>/swapped computes C^T)";
}

}  // namespace xgemm::matmul
