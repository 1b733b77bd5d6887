#include "softmax/masked.h"

#include <algorithm>

#include "device/integer.h"
#include "reduce/plan.h"
#include "torch/error.h"

namespace xgemm::softmax {

namespace {

constexpr std::int64_t kWarp = 32, kShortThreads = 128, kMaxThreads = 1024, kTileThreads = 256;

}  // namespace

Masked make_masked(const char* op, DType dtype, MaskKind mask, double scale, std::span<const std::int64_t> sizes,
                   std::span<const std::int64_t> strides, std::span<const std::int64_t> mask_strides, std::int64_t dim,
                   bool batch_invariant) {
  Masked plan{.dtype = dtype, .mask = mask, .scale = scale};
  const auto d = static_cast<std::size_t>(dim);
  if (!sizes.empty()) {
    plan.length = sizes[d];
    plan.input_stride = strides[d];
    plan.mask_stride = mask_strides[d];
    const auto outer = reduce::contiguous_map(op, sizes.first(d), strides.first(d), mask_strides.first(d));
    const auto columns = reduce::contiguous_map(op, sizes.subspan(d + 1), strides.subspan(d + 1), mask_strides.subspan(d + 1));
    plan.outer_map = outer.map;
    plan.outer = outer.count;
    plan.column_map = columns.map;
    plan.columns = columns.count;
  }
  const std::int64_t width = 16 / static_cast<std::int64_t>(size_of(dtype)), vectors = plan.length / width;
  const bool vector_rows =
      !batch_invariant && plan.length % width == 0 && plan.input_stride == 1 && (mask == MaskKind::none || plan.mask_stride == 1);
  const auto resident = [&](MaskedKernel kernel, std::int64_t pieces, std::int64_t per_lane) {
    if (plan.columns > 1 || pieces > kMaxThreads * per_lane) return false;
    plan.kernel = kernel;
    plan.threads =
        static_cast<int>(pieces <= kWarp * per_lane ? kShortThreads : ceil_div(ceil_div(pieces, per_lane), kWarp) * kWarp);
    plan.lanes = pieces <= kWarp * per_lane ? static_cast<int>(round_up_pow2(ceil_div(pieces, per_lane))) : plan.threads;
    plan.steps = static_cast<int>(ceil_div(pieces, plan.lanes));
    plan.blocks = ceil_div(plan.outer, plan.threads / plan.lanes);
    return true;
  };
  if (vector_rows && resident(MaskedKernel::rows, vectors, masked_steps(size_of(dtype)))) {
    plan.aligned = true;
    for (int i = 0; i < plan.outer_map.dims; ++i)
      plan.aligned &= plan.outer_map.stride[i] % width == 0 && plan.outer_map.out[i] % width == 0;
  } else if (!resident(MaskedKernel::elements, plan.length, kElementSteps)) {
    plan.lanes = static_cast<int>(std::min(kWarp, round_up_pow2(plan.columns)));
    plan.threads = static_cast<int>(std::clamp(plan.lanes * round_up_pow2(ceil_div(plan.length, 8)), kWarp, kTileThreads));
    plan.tiles = ceil_div(plan.columns, plan.lanes);
    plan.blocks = plan.outer * plan.tiles;
  }
  check(plan.blocks <= INT32_MAX, op, "expected a problem of fewer than 2^31 CTAs, got ", plan.blocks);
  return plan;
}

}  // namespace xgemm::softmax
