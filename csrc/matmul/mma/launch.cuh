// Host side of mma/kernel.cuh.
#pragma once
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/mma/kernel.cuh"
#include "matmul/mma/launch.h"

namespace xgemm::matmul {

template <class T, MmaTile kTile, bool kAlongKA, bool kAlongKB>
void launch_mma(const Problem& p, const MmaPlan& plan, cudaStream_t stream) {
  using Shape = mma_detail::Shape<kTile, kAlongKA, kAlongKB>;
  constexpr auto kGemm = mma_gemm<T, kTile, kAlongKA, kAlongKB>;
  allow_shared<kGemm, Shape::shared_bytes(Shape::kInfo.stages, true, true)>();
  const std::int64_t columns = ceil_div(p.n, Shape::kInfo.columns), tiles = ceil_div(p.m, Shape::kInfo.rows) * columns;
  const int slots = static_cast<int>(std::min<std::int64_t>(Shape::kInfo.stages, ceil_div(p.k, kMmaTileK)));
  const MmaArguments args{.problem = p,
                          .raw_a = plan.raw_a,
                          .raw_b = plan.raw_b,
                          .plain = has_plain_epilogue(p),
                          .slots = slots,
                          .columns = static_cast<unsigned>(columns),
                          .tiles = static_cast<unsigned>(tiles)};
  enqueue(kGemm,
          {.blocks = static_cast<unsigned>(tiles * p.batches),
           .threads = Shape::kThreads,
           .shared_bytes = static_cast<std::size_t>(Shape::shared_bytes(slots, plan.raw_a, plan.raw_b)),
           .early = true},
          stream, args);
}

template <class T, MmaTile kTile>
void launch_mma_layout(const Problem& p, const MmaPlan& plan, cudaStream_t stream) {
  const bool a = p.a.col_stride == 1, b = p.b.row_stride == 1;
  if (a)
    b ? launch_mma<T, kTile, true, true>(p, plan, stream) : launch_mma<T, kTile, true, false>(p, plan, stream);
  else
    b ? launch_mma<T, kTile, false, true>(p, plan, stream) : launch_mma<T, kTile, false, false>(p, plan, stream);
}

template <class T>
void launch_mma_type(const Problem& p, const MmaPlan& plan, cudaStream_t stream) {
  switch (plan.tile) {
    case MmaTile::t32x32: return launch_mma_layout<T, MmaTile::t32x32>(p, plan, stream);
    case MmaTile::t32x64: return launch_mma_layout<T, MmaTile::t32x64>(p, plan, stream);
    case MmaTile::t64x64: return launch_mma_layout<T, MmaTile::t64x64>(p, plan, stream);
    case MmaTile::t128x32: return launch_mma_layout<T, MmaTile::t128x32>(p, plan, stream);
  }
}

}  // namespace xgemm::matmul
