#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/fp64_mma/kernel.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

template <Fp64Tile kTile, bool kAlongKA, bool kAlongKB>
void launch(const Fp64Arguments& g, std::int64_t ctas, cudaStream_t stream) {
  constexpr Fp64Geometry kInfo = geometry(kTile);
  constexpr auto kKernel = fp64_mma<kTile, kAlongKA, kAlongKB>;
  allow_shared<kKernel, std::max(kInfo.shared_bytes(false), kInfo.shared_bytes(true))>();
  enqueue(kKernel,
          {.blocks = static_cast<unsigned>(ctas),
           .threads = kInfo.threads(),
           .shared_bytes = static_cast<std::size_t>(kInfo.shared_bytes(g.totals)),
           .early = true},
          stream, g);
}

}  // namespace

void launch_fp64(const Problem& p, const Fp64Plan& plan, void* workspace, cudaStream_t stream) {
  const TileInfo& tile = info(plan.tile);
  const std::int64_t rows = ceil_div(p.m, tile.m), columns = ceil_div(p.n, tile.n), tiles = rows * columns * p.batches;
  const Fp64Arguments g{.problem = p,
                        .vectors_a = has_vectors(p, lines_of_a(p), 2),
                        .vectors_b = has_vectors(p, lines_of_b(p), 2),
                        .totals = plan.splits == 1 && plan.blocks > plan.segment,
                        .plain = has_plain_epilogue(p),
                        .rows = static_cast<int>(rows),
                        .per_split = ShortDivider::of(tiles),
                        .per_batch = ShortDivider::of(rows * columns),
                        .per_group = ShortDivider::of(kFp64Group * columns),
                        .last_rows = ShortDivider::of((rows - 1) % kFp64Group + 1),
                        .blocks = static_cast<int>(plan.blocks),
                        .segment = static_cast<int>(plan.segment),
                        .split_blocks = static_cast<int>(plan.split_blocks),
                        .partial = plan.splits > 1 ? static_cast<double*>(workspace) : nullptr};
  // If neither stride is 1, elements are loaded one at a time in either layout.
  const bool a = p.a.row_stride != 1 || p.a.col_stride == 1, b = p.b.col_stride != 1 || p.b.row_stride == 1;
  dispatch_tile<kFp64Tiles.size()>(plan.tile, [&]<Fp64Tile kTile>() {
    dispatch_layouts(a, b,
                     [&]<bool kAlongKA, bool kAlongKB>() { launch<kTile, kAlongKA, kAlongKB>(g, tiles * plan.splits, stream); });
  });
  if (plan.splits == 1) return;
  const std::int64_t ctas = ceil_div(p.batches * p.m * p.n, kFp64FinishThreads);
  enqueue(fp64_finish,
          {.blocks = static_cast<unsigned>(std::min<std::int64_t>(ctas, 65536)), .threads = kFp64FinishThreads, .early = true},
          stream, g);
}

}  // namespace xgemm::matmul
