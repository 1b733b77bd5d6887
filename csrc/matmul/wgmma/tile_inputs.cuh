// Inputs of the epilogue beside the sums: the factors that undo the scaling of an fp32 tile's lines, or a half-precision tile's
// bias. Idle warps of the producer's warpgroup copy them to shared memory while the tile is multiplied.
#pragma once
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/wgmma/arguments.cuh"

namespace xgemm::matmul::wgmma_detail {

/// Largest exponent of factors that may be taken one after the other. Sums are below 2^53 and multiples of 2^-71 (products of
/// scaled fp16 parts are of 2^-48, promotion adds 2^-23 of one): the first product is exact, the second rounds, as unscale().
inline constexpr int kModerate = 60;

/// Called by fillers() threads. Writes the factors that undo the scaling of a tile's rows, then of its columns, as 2^e's bits
/// (outside a float's range: e + 127 in the bits from 23 on, sign included); then for each warp whether all its factors are
/// moderate.
template <class Config>
__device__ __forceinline__ void fill_scales(const WgmmaArguments& g, int row, int column, int batch, int thread, int* scales) {
  constexpr int kTileM = Config::kValue.tile_m, kLines = kTileM + Config::kValue.tile_n;
  const int m = static_cast<int>(g.problem.m), n = static_cast<int>(g.problem.n);
  const int first_a = batch * g.batch_step_a * m, first_b = batch * g.batch_step_b * n;  // the plan keeps these in 32 bits
  bool moderate = true;
#pragma unroll 1  // the producer's registers are few
  for (int i = thread; i < kLines; i += Config::kValue.fillers()) {
    const LineStats* const lines = i < kTileM ? g.lines_a : g.lines_b;
    const int line = i < kTileM ? first_a + min(row + i, m - 1) : first_b + min(column + i - kTileM, n - 1);
    const int e = -split_exponent(lines[line].max_bits);
    moderate = moderate && e >= -kModerate && e <= kModerate;
    scales[i] = (e + 127) << 23;
  }
  moderate = __all_sync(0xffffffffu, moderate);
  if (thread % 32 == 0) scales[kLines + thread / 32] = moderate;
}

/// The same for the bias of a tile's columns of C, as floats.
template <class Out, class Config>
__device__ __forceinline__ void fill_bias(const WgmmaArguments& g, int column, int thread, int* shared) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  const Operand& bias = g.problem.bias;
  const int n = static_cast<int>(g.problem.n);
#pragma unroll 1
  for (int i = thread; i < kConfig.tile_n; i += kConfig.fillers()) {
    const Out* const at = static_cast<const Out*>(bias.data) + min(column + i, n - 1) * bias.col_stride;
    reinterpret_cast<float*>(shared)[i] = convert<float>(*at);
  }
}

}  // namespace xgemm::matmul::wgmma_detail
