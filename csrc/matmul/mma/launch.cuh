// Host side of mma/kernel.cuh.
#pragma once
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/mma/kernel.cuh"
#include "matmul/mma/plan.h"

namespace xgemm::matmul {

template <class T, MmaTile kTile>
void launch_mma_tile(const MmaPlan& plan, MmaArguments g, cudaStream_t stream) {
  const Problem& p = g.problem;
  g.rows = static_cast<unsigned>(ceil_div(p.m, info(kTile).m)), g.columns = static_cast<unsigned>(ceil_div(p.n, info(kTile).n));
  dispatch_layouts(plan.a.k_major, plan.b.k_major, [&]<bool kAlongKA, bool kAlongKB>() {
    enqueue_with_shared<mma_gemm<T, kTile, kAlongKA, kAlongKB>, shared_bytes(kTile)>(
        {.blocks = {static_cast<unsigned>(g.rows * g.columns * p.batches), static_cast<unsigned>(plan.splits)},
         .threads = geometry(kTile).threads(),
         .early = true},
        stream, g);
  });
}

/// Of elements T, in kParts parts. One instantiation of each in a .cu file.
template <class T, int kParts>
void launch_mma_type(const MmaPlan& plan, const MmaArguments& g, cudaStream_t stream) {
  dispatch_tile<kMmaTiles.size()>(plan.tile, [&]<MmaTile kTile>() {
    if constexpr (element_bytes(kTile) == sizeof(T) && parts_of(kTile) == kParts) launch_mma_tile<T, kTile>(plan, g, stream);
  });
}

}  // namespace xgemm::matmul
