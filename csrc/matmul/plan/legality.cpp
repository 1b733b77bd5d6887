#include "matmul/plan/legality.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "device/integer.h"
#include "matmul/gemv/plan.h"
#include "matmul/plan/tiles.h"

namespace xgemm::matmul {
namespace {

/// Of the fp32 kernels on Hopper's tensor cores whose order of additions depends on M, and which split operands themselves.
bool serves_fp32(const Problem& p, const DeviceProperties& gpu) {
  return gpu.major == 9 && p.dtype == DType::f32 && p.precision != Precision::ieee && !p.batch_invariant && !p.gated &&
         !p.prepared_b && std::min({p.m, p.n, p.k}) >= 1 && std::max({p.m, p.n, p.k}) <= kMostLines;
}

/// The same of kernels that count in 32 bits.
bool serves_short_fp32(const Problem& p, const DeviceProperties& gpu) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 4096;
  const auto steps = [](const Operand& x) {
    return x.row_stride >= 0 && x.row_stride < kLimit / 4 && x.col_stride >= 0 && x.col_stride < kLimit / 4;
  };
  return serves_fp32(p, gpu) && std::max({p.m, p.n, p.k}) < kLimit && steps(p.a) && steps(p.b);
}

/// Every name that forces a plan.
const std::vector<std::string>& all_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found{"gemv", "dot", "sweep", "wgmma_few_rows"};
    const auto family = [&](std::string_view any, const auto& tiles) {
      found.emplace_back(any);
      for (const TileInfo& tile : tiles) found.emplace_back(tile.name);
    };
    family("simt", kSimtTiles), family("sliced", kSlicedTiles), family("fp64", kFp64Tiles), family("mma", kMmaTiles);
    for (const TileInfo& tile : kSlicedTiles) found.push_back(std::string(tile.name) + "_apart");
    family("tf32", kTf32Tiles), family("bf16x3", kBf16x3Tiles), family("wgmma", kWgmmaTiles);
    return found;
  }();
  return names;
}

}  // namespace

bool serves_wgmma(const Problem& p, const DeviceProperties& gpu) {
  const bool fp32 = p.dtype == DType::f32;
  if (gpu.major != 9 || (!fp32 && !is_half(p.dtype)) || (fp32 && p.precision == Precision::ieee)) return false;
  if (p.m < 1 || p.n < 1 || p.k < 1 || p.k > 8'000'000 || p.m > kMostLines || p.n > kMostLines) return false;
  if (p.batches * std::max(p.m, p.n) > kMostLines || ceil_div(p.m, 64) * ceil_div(p.n, 32) * p.batches > kMostLines) return false;
  return !fp32 || p.batches <= kMostLines / 16;  // matrices of parts and blocks of split_columns() stay below 2^31
}

bool serves_bf16x3(const Problem& p, const DeviceProperties& gpu) { return serves_fp32(p, gpu); }

bool serves_tf32(const Problem& p, const DeviceProperties& gpu) {
  return serves_fp32(p, gpu) && p.precision != Precision::highest;
}

bool serves_mma(const Problem& p, const DeviceProperties& gpu) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 30) - 4096;  // bytes of a row in 32 bits
  if (gpu.major != 9 || !(is_half(p.dtype) || serves_tf32(p, gpu)) || p.gated || p.wide_out || p.factor) return false;
  if (std::min({p.m, p.n, p.k}) < 1 || std::max({p.m, p.n, p.k}) >= kLimit) return false;
  if (ceil_div(p.m, 16) * ceil_div(p.n, 32) >= kLimit / p.batches) return false;
  return (p.a.row_stride == 1 || p.a.col_stride == 1) && (p.b.row_stride == 1 || p.b.col_stride == 1);
}

bool serves_sliced(const Problem& p, const DeviceProperties& gpu) {
  return serves_short_fp32(p, gpu) && ceil_div(p.m, 32) * ceil_div(p.n, 32) < (std::int64_t{1} << 27) / p.batches;
}

bool serves_fp64(const Problem& p, const DeviceProperties& gpu) {
  return gpu.major == 9 && p.dtype == DType::f64 && p.m >= 1 && p.n > kGemvLines && std::max({p.m, p.n, p.k}) <= kMostLines;
}

bool serves_dot(const Problem& p) {
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  return p.dtype == DType::f32 && !p.batch_invariant && p.k > 0 && p.k < kLimit &&
         (dot_streams_b(p) || (p.n <= kGemvLines && a_along_k(p))) && std::max(p.m, p.n) < kLimit / p.batches;
}

bool serves_sweep(const Problem& p, const DeviceProperties& gpu) {
  const bool of_b = p.m <= kGemvLines && p.b.col_stride == 1, of_a = p.n <= kGemvLines && p.a.row_stride == 1;
  const std::int64_t lines = of_b ? p.n : p.m;
  return serves_short_fp32(p, gpu) && (of_b || of_a) && lines >= 32 &&
         ceil_div(lines, kSweepColumns) < (std::int64_t{1} << 27) / p.batches;
}

bool leaves_out_family(std::string_view forced, std::string_view family) {
  return !forced.empty() && !forced.starts_with(family);
}

bool names_a_tile(std::string_view forced) { return forced.find('_') != forced.npos; }

bool leaves_out_tile(std::string_view forced, std::string_view tile) {
  return names_a_tile(forced) && without_splits(forced) != tile;
}

std::string_view without_splits(std::string_view forced) { return forced.substr(0, forced.find('/')); }

std::optional<std::int64_t> forced_splits(std::string_view forced) {
  const auto slash = forced.find('/');
  if (slash == forced.npos) return {};
  std::int64_t splits = 0;
  std::from_chars(forced.data() + slash + 1, forced.data() + forced.size(), splits);
  return splits;
}

bool is_plan_name(std::string_view forced) {
  if (const auto slash = forced.find('/'); slash != forced.npos) {
    const std::string_view splits = forced.substr(slash + 1);
    if (!forced.starts_with("fp64_") && !forced.starts_with("mma_tf32_")) return false;
    if (splits.empty() || splits.find_first_not_of("0123456789") != splits.npos) return false;
  }
  return std::find(all_names().begin(), all_names().end(), without_splits(forced)) != all_names().end();
}

std::string plan_names() {
  std::string text;
  for (const auto& name : all_names()) text += (text.empty() ? "" : ", ") + name;
  return text + " (fp64_<tile>/<splits> and mma_tf32_<tile>/<splits> also say the number of splits)";
}

}  // namespace xgemm::matmul
