#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/fp64_mma/kernel.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {

void launch_fp64(const Problem& problem, const Fp64Plan& plan, void* workspace, cudaStream_t stream) {
  const Problem p = fp64_problem(problem);
  const TileInfo& tile = info(plan.tile);
  const std::int64_t rows = ceil_div(p.m, tile.m), columns = ceil_div(p.n, tile.n);
  const Fp64Arguments g{.problem = p,
                        .vectors_a = has_vectors(p, lines_of_a(p), 2),
                        .vectors_b = has_vectors(p, lines_of_b(p), 2),
                        .plain = has_plain_epilogue(p) && !p.bias.data,
                        .rows = static_cast<unsigned>(rows),
                        .columns = static_cast<unsigned>(columns),
                        .blocks = static_cast<int>(plan.blocks),
                        .segment = static_cast<int>(plan.segment),
                        .split_blocks = static_cast<int>(plan.split_blocks),
                        .partial = plan.splits > 1 ? static_cast<double*>(workspace) : nullptr};
  // If neither stride is 1, elements are loaded one at a time in either layout.
  const bool a = p.a.row_stride != 1 || p.a.col_stride == 1, b = p.b.col_stride != 1 || p.b.row_stride == 1;
  dispatch_tile<kFp64Tiles.size()>(plan.tile, [&]<Fp64Tile kTile>() {
    dispatch_layouts(a, b, [&]<bool kAlongKA, bool kAlongKB>() {
      using Shape = fp64_detail::Shape<kTile, kAlongKA, kAlongKB>;
      enqueue_with_shared<fp64_mma<kTile, kAlongKA, kAlongKB>, Shape::kBytes>(
          {.blocks = {static_cast<unsigned>(rows * columns * p.batches), static_cast<unsigned>(plan.splits)},
           .threads = Shape::kThreads,
           .early = true},
          stream, g);
    });
  });
  if (plan.splits == 1) return;
  const std::int64_t ctas = ceil_div(p.batches * p.m * p.n, kFp64FinishThreads);
  enqueue(fp64_finish,
          {.blocks = static_cast<unsigned>(std::min<std::int64_t>(ctas, 65536)), .threads = kFp64FinishThreads, .early = true},
          stream, g);
}

}  // namespace xgemm::matmul
