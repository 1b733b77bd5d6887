#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/launch.h"
#include "matmul/sliced/fallback.cuh"

namespace xgemm::matmul {
namespace {

SlicedArguments arguments(const Problem& p, const SlicedPlan& plan) {
  return {.problem = p,
          .a_vectors = has_vectors(p, lines_of_a(p), 4),
          .b_vectors = has_vectors(p, lines_of_b(p), 4),
          .plain = has_plain_epilogue(p) && !p.bias.data,
          .apart = plan.apart,
          .splits = static_cast<int>(plan.splits),
          .columns = static_cast<unsigned>(ceil_div(p.n, info(plan.tile).n)),
          .tiles = static_cast<unsigned>(plan.tiles / p.batches),
          .all_tiles = static_cast<unsigned>(plan.tiles)};
}

}  // namespace

void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream) {
  const std::int64_t blocks = plan.apart ? ceil_div(plan.tiles, sliced::kWarps) : plan.tiles * plan.splits;
  const Grid grid{.blocks = static_cast<unsigned>(blocks),
                  .threads = sliced::kThreads,
                  .cluster = static_cast<unsigned>(plan.splits),
                  .early = true};
  dispatch_tile<kSlicedTiles.size()>(plan.tile, [&]<SlicedTile kTile>() {
    dispatch_layouts(a_along_k(p), b_along_k(p), [&]<bool kAlongKA, bool kAlongKB>() {
      enqueue_with_shared<sliced_gemm<kTile, kAlongKA, kAlongKB>, sliced::Shape<kTile, kAlongKA, kAlongKB>::kBytes>(
          grid, stream, arguments(p, plan));
    });
  });
}

void launch_sliced_fallback(const Problem& p, const SlicedPlan& plan, const FailedPairs& only, const FailedProduct& counts,
                            const FailedLines* prepared, int sm_count, cudaStream_t stream) {
  const Grid grid{.blocks = static_cast<unsigned>(std::min<std::int64_t>(plan.tiles, sm_count)),
                  .threads = sliced::kThreads,
                  .early = true};
  dispatch_layouts(a_along_k(p), b_along_k(p), [&]<bool kAlongKA, bool kAlongKB>() {
    constexpr SlicedTile kTile = kFallbackTile;
    enqueue_with_shared<sliced_fallback<kTile, kAlongKA, kAlongKB>, sliced::Shape<kTile, kAlongKA, kAlongKB>::kBytes>(
        grid, stream, FallbackArguments{arguments(p, plan), only, counts, prepared});
  });
}

}  // namespace xgemm::matmul
