#include "split.h"
#include "matmul/kernels/full_range_gemm.cuh"
#include "matmul/kernels/split_fp16.cuh"
namespace xgemm::dev {
void split(const SplitArguments& s, bool k_major, cudaStream_t stream) {
  if (k_major) {
    split_rows<<<static_cast<unsigned>(s.lines) * s.batch, split_detail::kThreads, 0, stream>>>(s);
    return;
  }
  cudaMemsetAsync(s.stats, 0, sizeof(LineStats) * s.lines * s.batch, stream);
  const dim3 grid(static_cast<unsigned>((s.lines + split_detail::kStrip - 1) / split_detail::kStrip) * s.batch,
                  (s.k + split_detail::kDepth - 1) / split_detail::kDepth);
  split_columns_max<<<grid, split_detail::kThreads, 0, stream>>>(s);
  split_columns<<<grid, split_detail::kThreads, 0, stream>>>(s);
}
void full_range(const FullRangeArguments<NoTransform>& g, cudaStream_t stream) {
  const unsigned tiles = (g.m + kFullRangeTile - 1) / kFullRangeTile * ((g.n + kFullRangeTile - 1) / kFullRangeTile) * g.batch;
  full_range_gemm<<<tiles, 256, 0, stream>>>(g);
}
}  // namespace xgemm::dev
