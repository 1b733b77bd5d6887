// Host side of what tf32 and presplit share.
#pragma once
#include "matmul/fp32_tiles/arguments.cuh"
#include "matmul/fp32_tiles/plan.h"

namespace xgemm::matmul {

/// Fills all arguments but the tensor maps, slot_bytes and the largest first lines. `swapped`: x are columns of B.
inline void describe_tiles(Fp32TilesArguments& g, const Problem& p, const Fp32TilesPlan& plan, bool swapped, unsigned* counters,
                           float* partials) {
  g.problem = p;
  g.swapped = swapped;
  g.plain = has_plain_epilogue(p);
  g.batch_step_x = (swapped ? plan.b : plan.a).batch_step, g.batch_step_y = (swapped ? plan.a : plan.b).batch_step;
  g.tiles_x = static_cast<unsigned>(plan.tiles_x), g.tiles_y = static_cast<unsigned>(plan.tiles_y);
  g.items = static_cast<unsigned>(plan.tiles_x * plan.tiles_y * p.batches * plan.splits);
  g.splits = static_cast<unsigned>(plan.splits);
  g.blocks = static_cast<unsigned>(plan.blocks), g.split_blocks = static_cast<unsigned>(plan.split_blocks);
  g.counters = counters, g.partials = partials;
}

}  // namespace xgemm::matmul
