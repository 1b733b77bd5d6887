// A gated tile: activation(gate's sums + bias) * (up's sums + bias).
#pragma once
#include <type_traits>

#include "matmul/epilogue/store_rows.cuh"
#include "matmul/epilogue/store_tma.cuh"
#include "matmul/wgmma/cta.cuh"

namespace xgemm::matmul::wgmma_detail {

/// 16 columns at a time: in boxes by TMA if rows of C are aligned, else from registers, a few bytes at a time (few rows, odd
/// n). The loop is unrolled for half types, as selecting registers at run time takes four times the instructions; not for fp32,
/// whose long activations would overflow the instruction cache.
template <class Out, WgmmaConfig kConfig>
__device__ __forceinline__ void store_gated(const float (&sums)[kConfig.tile_n / 2], const WgmmaArguments& g, const Tile& tile,
                                            int warp, int lane, unsigned char* staging) {
  constexpr int kColumns = kConfig.columns(), kTurn = 16, kTurns = kColumns / kTurn, kHalf = kColumns / 2;
  constexpr int kBox = 128 / static_cast<int>(sizeof(Out)) / kTurn;  // turns
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  const int row = tile.row + warp * 16, column = tile.column, batch = tile.batch;
  staging += warp * kConfig.staging_bytes();
  if (row >= m) return;
  const int quad = lane % 4, first = lane / 4;
  const Out* const bias_gate = static_cast<const Out*>(g.gate.bias_gate.data);
  const Out* const bias_up = static_cast<const Out*>(g.gate.bias_up.data);
  Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
  int exponents[2] = {};
  if constexpr (kConfig.scaled) {
    const LineStats* const lines_a = g.lines_a + static_cast<std::int64_t>(batch) * g.batch_step_a * m;
#pragma unroll
    for (int h = 0; h < 2; ++h) exponents[h] = -split_exponent(lines_a[min(row + first + 8 * h, m - 1)].max_bits);
  }
  const BoxStore<Out, kTurn> boxes(staging, lane);
#pragma unroll(kConfig.scaled ? 1 : kTurns)
  for (int turn = 0; turn < kTurns; ++turn) {
    const int at = column + turn * kTurn;
    if (at >= n) break;
    float x[8], y[8];  // of column 8 (i / 4) + 2 quad + i % 2 and row first + 8 (i % 4 / 2)
#pragma unroll
    for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index
      if (known != turn) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = sums[8 * known + i], y[i] = sums[kHalf + 8 * known + i];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int here = min(at + 8 * (j / 2) + 2 * quad + j % 2, n - 1);
      int exponent_gate = 0, exponent_up = 0;
      if constexpr (kConfig.scaled) {
        exponent_gate = -split_exponent(g.lines_b[here].max_bits);
        exponent_up = -split_exponent(g.gate.lines_up[here].max_bits);
      }
      const float add_gate = bias_gate ? convert<float>(bias_gate[here * g.gate.bias_gate.col_stride]) : 0.f;
      const float add_up = bias_up ? convert<float>(bias_up[here * g.gate.bias_up.col_stride]) : 0.f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = j / 2 * 4 + 2 * h + j % 2;
        if constexpr (kConfig.scaled) {
          x[i] = unscale(x[i], exponents[h] + exponent_gate);
          y[i] = unscale(y[i], exponents[h] + exponent_up);
        }
        x[i] = plus(plus(x[i], 0.f), add_gate);  // + 0: see apply.cuh
        y[i] = plus(plus(y[i], 0.f), add_up);
      }
    }
    activate_all<Out>(x, g.gate.activation);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = fmaf(x[i], y[i], 0.f);
    if (kColumns * sizeof(Out) >= 128 && g.boxes) {
      boxes.put(x, turn, at + kTurn >= n, g, column + turn / kBox * kBox * kTurn, row, batch, n, std::false_type{});
    } else {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int r = row + first + 8 * (pair % 2), c = at + 8 * (pair / 2) + 2 * quad;
        if (r >= m || c >= n) continue;
        Out* const target = out + static_cast<std::int64_t>(r) * p.n + c;
        const Vector<Out, 2> results{{convert<Out>(x[2 * pair]), convert<Out>(x[2 * pair + 1])}};
        if (n % 2 == 0) {
          store_vector(target, results);
        } else {
          target[0] = results[0];
          if (c + 1 < n) target[1] = results[1];
        }
      }
    }
  }
}

}  // namespace xgemm::matmul::wgmma_detail
