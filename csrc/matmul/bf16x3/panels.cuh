// bf16x3: producer threads load a block of a B that TMA cannot load.
#pragma once
#include "device/ptx/cp_async.cuh"
#include "matmul/bf16x3/scheduler.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul::bf16x3 {

/// Copies 64 k from `k0` on of a tile's columns to `target`: panels of rows of 32 elements, in TMA's layout, [half of
/// k][column], else [32 columns][k]. (A struct, because with a function nvcc schedules the kernel differently.)
template <class Config>
struct PanelCopy {
  static constexpr bool kKMajorB = Config::kValue.k_major_b;
  const Problem& p;
  int warp, lane, n, k_size;

  __device__ __forceinline__ void operator()(unsigned char* target, const TileOrigin& at, int k0) const {
    constexpr int kPanels = kKMajorB ? 2 : 4, kPanelRows = kKMajorB ? kColumns : kBlock, kWarpStep = kProducerWarps;
    static_assert(kWarpStep == 8, "a warp's rows are swizzled alike");
    const float* const b = static_cast<const float*>(p.b.data) + batch_offset(p, p.b, at.batch);
    const std::int64_t step = kWarpStep * (kKMajorB ? p.b.col_stride : p.b.row_stride);
    unsigned char* to = target + warp * 128 + ((lane / 4) ^ warp) * 16 + lane % 4 * 4;
#pragma unroll 1
    for (int panel = 0; panel < kPanels; ++panel) {
      const int column = at.column + (kKMajorB ? warp : panel * 32 + lane), k = k0 + (kKMajorB ? panel * 32 + lane : warp);
      const float* from = b + column * p.b.col_stride + k * p.b.row_stride;
      const int some = (kKMajorB ? k < k_size : column < n) ? (kKMajorB ? n - column : k_size - k) : 0;
#pragma unroll 4
      for (int row = 0; row < kPanelRows; row += kWarpStep) {
        cp_async<4>(to, from, row < some ? 4 : 0);
        from += step, to += kWarpStep * 128;
      }
    }
  }
};

}  // namespace xgemm::matmul::bf16x3
