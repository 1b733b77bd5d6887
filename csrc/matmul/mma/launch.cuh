// Host side of mma/kernel.cuh.
#pragma once
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/launch.h"
#include "matmul/mma/kernel.cuh"

namespace xgemm::matmul {

template <class T, MmaTile kTile, bool kAlongKA, bool kAlongKB, bool kUnaligned>
void launch_mma(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream) {
  using Shape = mma_detail::Shape<T, kTile, kAlongKA, kAlongKB, kUnaligned>;
  constexpr auto kGemm = mma_gemm<T, kTile, kAlongKA, kAlongKB, kUnaligned>;
  allow_shared<kGemm, Shape::shared_bytes(Shape::kStages)>();
  const std::int64_t columns = ceil_div(p.n, Shape::kInfo.columns), tiles = ceil_div(p.m, Shape::kInfo.rows) * columns;
  const int slots = static_cast<int>(std::min<std::int64_t>(Shape::kStages, plan.split_blocks));
  const MmaArguments args{.problem = p,
                          .bytes_a = plan.bytes_a,
                          .bytes_b = plan.bytes_b,
                          .plain = has_plain_epilogue(p),
                          .slots = slots,
                          .columns = static_cast<unsigned>(columns),
                          .tiles = static_cast<unsigned>(tiles),
                          .split_blocks = static_cast<int>(plan.split_blocks),
                          .meetings = static_cast<Meeting*>(counters),
                          .partials = partials};
  enqueue(kGemm,
          {.blocks = {static_cast<unsigned>(tiles * p.batches), static_cast<unsigned>(plan.splits)},
           .threads = Shape::kThreads,
           .shared_bytes = static_cast<std::size_t>(Shape::shared_bytes(slots)),
           .early = true},
          stream, args);
}

template <class T, MmaTile kTile>
void launch_mma_tile(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream) {
  dispatch_layouts(a_along_k(p), b_along_k(p), [&]<bool kAlongKA, bool kAlongKB>() {
    if constexpr (!is_tf32(kTile))  // of fp32 one kernel for both: few instantiations
      if (!plan.is_unaligned()) return launch_mma<T, kTile, kAlongKA, kAlongKB, false>(p, plan, counters, partials, stream);
    launch_mma<T, kTile, kAlongKA, kAlongKB, true>(p, plan, counters, partials, stream);
  });
}

template <class T>
void launch_mma_type(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream) {
  dispatch_tile<kMmaTiles.size()>(plan.tile, [&]<MmaTile kTile>() {
    if constexpr (is_tf32(kTile) == (sizeof(T) == 4)) launch_mma_tile<T, kTile>(p, plan, counters, partials, stream);
  });
}

}  // namespace xgemm::matmul
