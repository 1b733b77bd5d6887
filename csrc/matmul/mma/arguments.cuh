// The arguments of mma/kernel.cuh.
#pragma once
#include <algorithm>

#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/mma/plan.h"
#include "matmul/operand_map.h"

namespace xgemm::matmul {

/// How an operand's elements are read.
struct MmaOperand {
  int bytes;                         ///< as MmaPlan's
  std::int64_t part_stride = 0;      ///< of a split operand, in elements
  const LineStats* lines = nullptr;  ///< of a split operand, [batch][line]
  int lines_step = 0;                ///< lines from batch to batch, 0: one matrix for all
};

struct MmaArguments {
  Problem problem;  ///< A and B: what is multiplied, in place or a copy
  MmaOperand a, b;
  int split_blocks;                ///< k-blocks of a split, which are gridDim.y
  float* partials;                 ///< sums of splits, [split][batch][m][n]: simt_finish adds them
  unsigned rows = 0, columns = 0;  ///< tiles of a batch
};

/// The arguments of all tiles; `workspace`, `partials`: as in launch_mma.
inline MmaArguments mma_arguments(const Problem& p, const MmaPlan& plan, unsigned char* workspace, float* partials) {
  MmaArguments g{.problem = p,
                 .a = {.bytes = plan.bytes_a},
                 .b = {.bytes = plan.bytes_b},
                 .split_blocks = static_cast<int>(plan.split_blocks),
                 .partials = partials};
  const auto replace = [&](Operand& x, MmaOperand& how, const TensorOperand& t, bool rows_are_lines) {
    if (!t.copied) return;
    const int parts = std::max(1, plan.parts), lines = static_cast<int>(t.k_major ? t.other : t.inner);
    unsigned char* const memory = memory_of(t, p, workspace);
    x = {.data = memory + t.copy, .row_stride = 1, .col_stride = 1};
    (t.k_major == rows_are_lines ? x.row_stride : x.col_stride) = t.ld;
    std::int64_t step = t.batch_step * t.plane * parts;
    for (int d = p.batch_dims - 1; d >= 0; --d) x.batch_stride[d] = step, step *= p.batch[d];
    how.part_stride = t.plane, how.lines_step = t.batch_step * lines;
    if (plan.parts > 0) how.lines = reinterpret_cast<const LineStats*>(memory + t.stats);
  };
  replace(g.problem.a, g.a, plan.a, true), replace(g.problem.b, g.b, plan.b, false);
  return g;
}

}  // namespace xgemm::matmul
