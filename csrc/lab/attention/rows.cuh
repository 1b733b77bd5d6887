// What the steps share: which keys a row sees; and, from step 04 on, the online softmax in a tensor core's accumulators.
//
// Both mma.sync and wgmma leave a warp's 16 rows so: lane l holds in x[4 j + 2 h + c] the element of row l / 4 + 8 h and column
// 8 j + 2 (l % 4) + c. A lane has two rows, h = 0 and 1, and shares them with its three neighbours.
#pragma once
#include "device/numeric.cuh"
#include "device/warp.cuh"
#include "lab/attention/attention.h"

namespace xgemm::lab::attention {

/// Row i sees keys 0 to keys_of(p, i) - 1, at least one.
__device__ __forceinline__ int keys_of(const Problem& p, int row) { return p.causal ? min(row + 1, p.s) : p.s; }

/// Scores of keys that a row does not see become -inf. `row`: of h = 0; `key`: the tile's first.
template <int kCount>
__device__ __forceinline__ void mask(float (&scores)[kCount], const Problem& p, int row, int key) {
  const int mine = key + static_cast<int>(threadIdx.x) % 4 * 2, keys[2] = {keys_of(p, row), keys_of(p, row + 8)};
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    if (mine + i / 4 * 8 + i % 2 >= keys[i / 2 % 2]) scores[i] = -INFINITY;
}

/// The two rows' maxima and sums of weights so far.
struct OnlineSoftmax {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  ///< of this lane's columns, until finish()

  /// Turns a tile's scores into weights 2^(scale (score - maximum)), and brings `out` to the new maximum.
  template <int kCount, int kOut>
  __device__ __forceinline__ void add(float (&scores)[kCount], float (&out)[kOut], float scale_log2) {
    float base[2], factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = maximum[h];
#pragma unroll
      for (int i = 2 * h; i < kCount; i += 4) largest = fmaxf(largest, fmaxf(scores[i], scores[i + 1]));
      largest = warp_reduce<4>(largest, [](float a, float b) { return fmaxf(a, b); });
      base[h] = __fmul_rn(largest, scale_log2);
      factor[h] = exp2_approx(__fmul_rn(maximum[h], scale_log2) - base[h]);  // 0 for the first tile
      maximum[h] = largest;
      sum[h] *= factor[h];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      scores[i] = exp2_approx(fmaf(scores[i], scale_log2, -base[i / 2 % 2]));
      sum[i / 2 % 2] += scores[i];
    }
#pragma unroll
    for (int i = 0; i < kOut; ++i) out[i] *= factor[i / 2 % 2];
  }

  /// After the last tile: the whole row's sum, in all four lanes.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (float& x : sum) x = warp_reduce<4>(x, [](float a, float b) { return a + b; });
  }
};

/// Weights as A operands, 16 keys each: a lane holds the same elements in both layouts, so nothing moves.
template <int kCount>
__device__ __forceinline__ void to_fragments(std::uint32_t (&fragments)[kCount / 8][4], const float (&weights)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) fragments[i / 4][i % 4] = pack_pair<bf16>(weights[2 * i], weights[2 * i + 1]);
}

/// out / sum to memory. `row`: of h = 0.
template <int kOut>
__device__ __forceinline__ void store(const Problem& p, int head, int row, const float (&out)[kOut], const float (&sum)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (row + 8 * h >= p.s) continue;
    __nv_bfloat16* to = p.out + (std::int64_t{head} * p.s + row + 8 * h) * (2 * kOut) + threadIdx.x % 4 * 2;
    const float inverse = 1 / sum[h];
#pragma unroll
    for (int j = 0; j < kOut / 4; ++j)
      *reinterpret_cast<__nv_bfloat162*>(to + 8 * j) =
          __floats2bfloat162_rn(out[4 * j + 2 * h] * inverse, out[4 * j + 2 * h + 1] * inverse);
  }
}

}  // namespace xgemm::lab::attention
