// bf16x3: how sums are stored to C.
#pragma once
#include "matmul/bf16x3/fallback.cuh"
#include "matmul/epilogue/quad.cuh"

namespace xgemm::matmul::bf16x3 {

/// Stores sums (C^T in wgmma's register layout) without shared memory. With swap_ab, nothing fused and even `ld`, four lanes
/// hold 32 bytes of a row, so shared memory gains nothing.
template <class Config>
__device__ __forceinline__ void store_registers(const float (&sums)[Config::kValue.rows / 2], float* out, int ld, float alpha,
                                                const FragmentPlace<Config>& place, int rows, int columns) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int line = h ? place.second : place.first;
    float* const to = out + static_cast<std::int64_t>(line) * ld + 2 * place.quad;
#pragma unroll
    for (int j = 0; j < Config::kValue.rows / 8; ++j)
      if (line < columns && 8 * j + 2 * place.quad < rows)
        store_vector(to + 8 * j,
                     Vector<float, 2>{{fmaf(alpha, sums[4 * j + 2 * h], 0.f), fmaf(alpha, sums[4 * j + 2 * h + 1], 0.f)}});
  }
}

/// Stores four neighbouring sums of a row of C with the fused epilogue; the fallback only the elements that fp16 parts cannot
/// represent.
template <class Config>
struct QuadStore {
  static constexpr bool kFallback = Config::kValue.fallback;
  const Bf16x3Arguments& g;
  const Fallback& fallback;
  float alpha;
  int batch, row0, column0;  ///< of the consumer's part of C
  int width, row_length;     ///< of that part; of C
  float* out;                ///< where that part begins

  __device__ __forceinline__ void operator()(int row, int column, const Vector<float, 4>& sum) const {
    const Problem& p = g.problem;
    Quad<float> results{{sum[0], sum[1], sum[2], sum[3]}};
    const int count = width - column;
    if (g.plain) {  // a path of its own: the other one's code would push the main loop out of the instruction cache
#pragma unroll
      for (float& x : results.v) x = fmaf(alpha, x, 0.f);
    } else {
      results = make_epilogue<float, float>(p, batch).template quad<float>(results, row0 + row, column0 + column, count);
    }
    float* const to = out + static_cast<std::int64_t>(row) * row_length + column;
    if constexpr (kFallback) {
      if (!fallback.all) {
        const LineQuality of_row = line_quality(stats_a(g, batch)[row0 + row], p.k);
        const LineStats* const columns_here = stats_b(g, batch) + column0 + column;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (j < count && !pairs_well(of_row, line_quality(columns_here[j], p.k))) to[j] = results.v[j];
        return;
      }
    }
    store_row_quad(to, results, count, row_length);
  }
};

}  // namespace xgemm::matmul::bf16x3
