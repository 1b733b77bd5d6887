#include "topk_softmax/plan.h"

#include <algorithm>
#include <vector>

#include "device/integer.h"

namespace xgemm::topk_softmax {
namespace {

constexpr std::int64_t kWarp = 32, kShortThreads = 128, kMaxWarps = 8, kMaxBlocks = std::int64_t{1} << 30;
constexpr std::int64_t kFewValues = 32, kMaxRounds = 128, kTilesPerWarp = 16;

}  // namespace

Plan make_plan(const char* op, const reduce::Source& source, std::int64_t dim, int k, bool renormalize, DType out) {
  Plan plan{.in = source.dtype, .out = out, .renormalize = renormalize, .k = k};
  // The output's shape is the input's with k in place of the length.
  std::vector<std::int64_t> sizes(source.sizes.begin(), source.sizes.end()), out_strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0; step *= sizes[d]) {
    out_strides[d] = step;
    if (static_cast<std::int64_t>(d) != dim) continue;
    plan.length = sizes[d], plan.stride = source.strides[d], plan.out_stride = step;
    step *= k, sizes[d] = 1;
  }
  const auto [map, rows] = reduce::contiguous_map(op, sizes, source.strides, out_strides);
  plan.kept = map, plan.rows = rows;
  const auto bytes = static_cast<std::int64_t>(size_of(plan.in)), width = 16 / bytes;
  plan.vector = plan.stride == 1 || plan.length == 1;
  plan.aligned = plan.vector;
  for (int d = 0; d < plan.kept.dims; ++d) plan.aligned &= plan.kept.stride[d] * bytes % 16 == 0;

  // A round costs five operations per register, so short rows share a warp; longer rows are faster with a threshold.
  if (plan.length <= kMaxRounds) {
    plan.kernel = Kernel::rounds;
    plan.values = plan.length <= kFewValues ? 8 : 16;
    plan.lanes = static_cast<int>(round_up_pow2(ceil_div(plan.length, plan.values)));
    plan.threads = kShortThreads;
    plan.shared_bytes = static_cast<std::size_t>(plan.threads / plan.lanes * k) * entry_bytes(plan.in);
  } else {
    plan.kernel = Kernel::select;
    // Fewer warps per row merge fewer lists. One serves k up to 32: the first threshold is the k-th of 32 lanes' maxima.
    const std::int64_t tiles = ceil_div(plan.length, tile_steps(plan.in) * kWarp * width);
    const std::int64_t warps = std::clamp<std::int64_t>(round_up_pow2(tiles) / kTilesPerWarp, k > kWarp ? 2 : 1, kMaxWarps);
    plan.rank = static_cast<int>(ceil_div(k, warps));
    plan.lanes = static_cast<int>(warps * kWarp);
    plan.threads = warps == 1 ? static_cast<int>(kShortThreads) : plan.lanes;
    plan.shared_bytes = static_cast<std::size_t>(plan.threads / kWarp * kQueueEntries) * entry_bytes(plan.in);
  }
  plan.blocks = std::min(ceil_div(plan.rows, plan.threads / plan.lanes), kMaxBlocks);
  return plan;
}

}  // namespace xgemm::topk_softmax
