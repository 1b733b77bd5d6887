// Host side of mma/large.cuh.
#pragma once
#include <algorithm>

#include "device/all_shared.h"
#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/launch.h"
#include "matmul/mma/large.cuh"
#include "matmul/operand_map.h"

namespace xgemm::matmul {

/// The arguments of all tiles; `workspace`: as in launch_large.
inline LargeArguments large_arguments(const Problem& p, const LargePlan& plan, unsigned char* workspace, float* partials) {
  const auto operand = [&](const Operand& x, const TensorOperand& t) {
    unsigned char* const memory = memory_of(t, p, workspace);
    const int lines = static_cast<int>(t.k_major ? t.other : t.inner);
    return LargeOperand{.data = t.copied ? memory + t.copy : x.data,
                        .ld = t.ld,
                        .batch_stride = t.batch_step * t.plane * std::max(1, plan.parts),
                        .part_stride = t.plane,
                        .padded = t.copied,
                        .lines = plan.parts > 0 ? reinterpret_cast<const LineStats*>(memory + t.stats) : nullptr,
                        .lines_step = t.batch_step * lines};
  };
  return {.problem = p,
          .a = operand(p.a, plan.a),
          .b = operand(p.b, plan.b),
          .rows = 0,
          .columns = 0,
          .split_blocks = static_cast<int>(plan.split_blocks),
          .partials = partials};
}

template <class T, LargeTile kTile, int kParts>
void launch_large_tile(const Problem& p, const LargePlan& plan, LargeArguments g, cudaStream_t stream) {
  const TileInfo& t = info(kTile);
  g.rows = static_cast<unsigned>(ceil_div(p.m, t.m)), g.columns = static_cast<unsigned>(ceil_div(p.n, t.n));
  dispatch_layouts(plan.a.k_major, plan.b.k_major, [&]<bool kAlongKA, bool kAlongKB>() {
    constexpr auto kKernel = mma_large<T, kTile, kParts, kAlongKA, kAlongKB>;
    constexpr int kSlot = large_slot_bytes(kTile, kParts);
    allow_all_shared<kKernel>();
    enqueue(kKernel,
            {.blocks = {static_cast<unsigned>(g.rows * g.columns * p.batches), static_cast<unsigned>(plan.splits)},
             .threads = geometry(kTile).threads(),
             .shared_bytes = static_cast<std::size_t>(geometry(kTile).slots * kSlot),
             .early = true},
            stream, g);
  });
}

template <class T, int kParts = 1>
void launch_large_type(const Problem& p, const LargePlan& plan, const LargeArguments& g, cudaStream_t stream) {
  dispatch_tile<kLargeTiles.size()>(plan.tile, [&]<LargeTile kTile>() {
    if constexpr (has_two_parts(kTile) == (kParts == 2)) launch_large_tile<T, kTile, kParts>(p, plan, g, stream);
  });
}

}  // namespace xgemm::matmul
