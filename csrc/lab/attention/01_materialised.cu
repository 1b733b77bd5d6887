// Step 01, materialised: three kernels, one a formula: S = Q K^T / sqrt(d); P = softmax(S); out = P V.
//
// What a framework without a fused kernel does. S is s x s numbers a head: 4 s^2 bytes of memory, written once, read three times
// and written by the softmax (safe softmax), read again by the second product. The products are those of the SGEMM ladder's step
// 03 (32 x 32 tiles in shared memory, a thread an element). Limit: two shared loads an FMA, as there; and memory: at s = 16384 a
// head's scores take 1 GiB, where Q, K, V and out take 16 MiB.
#include "lab/attention/rows.cuh"

namespace xgemm::lab::attention::step_01 {

constexpr int kTile = 32, kWarps = 8;

/// Row `row` of (heads, s, d), as fp32; zeros beyond s.
__device__ __forceinline__ float load(const __nv_bfloat16* x, const Problem& p, int head, int row, int column) {
  return row < p.s ? __bfloat162float(x[(std::int64_t{head} * p.s + row) * p.d + column]) : 0.f;
}

__global__ void __launch_bounds__(kTile* kTile) scores(const __grid_constant__ Problem p) {
  __shared__ float query[kTile][kTile], key[kTile][kTile + 1];  // + 1: columns of it without bank conflicts
  const int tx = threadIdx.x, ty = threadIdx.y, row0 = blockIdx.y * kTile, key0 = blockIdx.x * kTile, head = blockIdx.z;
  if (key0 >= keys_of(p, row0 + kTile - 1)) return;  // above the diagonal
  float sum = 0;
  for (int d0 = 0; d0 < p.d; d0 += kTile) {
    query[ty][tx] = load(p.query, p, head, row0 + ty, d0 + tx);
    key[ty][tx] = load(p.key, p, head, key0 + ty, d0 + tx);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += query[ty][i] * key[tx][i];
    __syncthreads();
  }
  if (row0 + ty < p.s && key0 + tx < p.s) p.scores[(std::int64_t{head} * p.s + row0 + ty) * p.s + key0 + tx] = sum;
}

/// A row a warp, in place; keys that the row does not see get weight 0.
__global__ void __launch_bounds__(kWarps * 32) softmax(const __grid_constant__ Problem p) {
  const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= p.s) return;
  float* x = p.scores + (std::int64_t{blockIdx.y} * p.s + row) * p.s;
  const int keys = keys_of(p, row);
  float largest = -INFINITY, sum = 0;
  for (int j = lane; j < keys; j += 32) largest = fmaxf(largest, x[j]);
  largest = warp_reduce(largest, [](float a, float b) { return fmaxf(a, b); });
  for (int j = lane; j < keys; j += 32) sum += exp2_approx((x[j] - largest) * p.scale_log2);
  sum = warp_reduce(sum, [](float a, float b) { return a + b; });
  for (int j = lane; j < p.s; j += 32) x[j] = j < keys ? exp2_approx((x[j] - largest) * p.scale_log2) / sum : 0.f;
}

__global__ void __launch_bounds__(kTile* kTile) outputs(const __grid_constant__ Problem p) {
  __shared__ float weights[kTile][kTile], value[kTile][kTile];
  const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * kTile + ty, column = blockIdx.x * kTile + tx;
  const int head = blockIdx.z, keys = keys_of(p, blockIdx.y * kTile + kTile - 1);
  const float* x = p.scores + (std::int64_t{head} * p.s + row) * p.s;
  float sum = 0;
  for (int key0 = 0; key0 < keys; key0 += kTile) {
    weights[ty][tx] = row < p.s && key0 + tx < p.s ? x[key0 + tx] : 0.f;
    value[ty][tx] = load(p.value, p, head, key0 + ty, column);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += weights[ty][i] * value[i][tx];
    __syncthreads();
  }
  if (row < p.s) p.out[(std::int64_t{head} * p.s + row) * p.d + column] = __float2bfloat16_rn(sum);
}

const auto launch = [](const Problem& p, cudaStream_t stream) {
  const auto heads = static_cast<unsigned>(p.heads), tiles = static_cast<unsigned>((p.s + kTile - 1) / kTile);
  scores<<<dim3(tiles, tiles, heads), dim3(kTile, kTile), 0, stream>>>(p);
  softmax<<<dim3((p.s + kWarps - 1) / kWarps, heads), kWarps * 32, 0, stream>>>(p);
  outputs<<<dim3(p.d / kTile, tiles, heads), dim3(kTile, kTile), 0, stream>>>(p);
};
const Step named_64({1, 64}, "attention 01_materialised 64", outputs, kTile* kTile, launch),
    named_128({1, 128}, "attention 01_materialised 128", outputs, kTile* kTile, launch);
const NameKernel named_scores("attention 01_materialised scores", scores, kTile* kTile),
    named_softmax("attention 01_materialised softmax", softmax, kWarps * 32);

}  // namespace xgemm::lab::attention::step_01
