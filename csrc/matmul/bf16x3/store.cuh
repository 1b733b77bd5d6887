// bf16x3: how sums are stored to C.
#pragma once
#include "matmul/bf16x3/fallback.cuh"
#include "matmul/epilogue/quad.cuh"

namespace xgemm::matmul::bf16x3 {

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
