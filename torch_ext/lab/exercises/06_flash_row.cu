// Exercise 06: attention, softmax(Q K^T / sqrt(d)) V, without storing scores and in one pass over the keys.
//
// query, key, value and out are (heads, s, d) in bf16, d is 64 or 128. A warp owns a row of Q; a lane holds d / 32 of its
// columns. The kernel below is right and slow: it walks over the keys twice, first for the row's largest score, then for the
// weights, and computes every score twice. Take the online recurrence of exercise 04 one step further: when a key raises the
// maximum from m to m', multiply the sum and the output so far by exp(m - m'). What to reach: step 02 of the attention ladder.
// Check with
//   python -m torch_ext.lab check 06 mine.cu
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <math.h>

constexpr int kWarps = 8;

/// The product of the row with one key, in every lane.
template <int kMine>
__device__ float score_of(const float (&q)[kMine], const __nv_bfloat16* key) {
  float sum = 0;
  for (int i = 0; i < kMine; ++i) sum += q[i] * __bfloat162float(key[i]);
  for (int lane = 16; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
  return sum;
}

template <int kD>
__global__ void kernel(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value, __nv_bfloat16* out,
                       int s) {
  constexpr int kMine = kD / 32;
  const int row = blockIdx.x * kWarps + threadIdx.x / 32;
  if (row >= s) return;
  const long long head = static_cast<long long>(blockIdx.y) * s * kD + threadIdx.x % 32 * kMine;
  float q[kMine], result[kMine] = {}, maximum = -INFINITY, sum = 0;
  for (int i = 0; i < kMine; ++i) q[i] = __bfloat162float(query[head + static_cast<long long>(row) * kD + i]) / sqrtf(kD);

  // TODO: one loop.
  for (int j = 0; j < s; ++j) maximum = fmaxf(maximum, score_of(q, key + head + static_cast<long long>(j) * kD));
  for (int j = 0; j < s; ++j) {
    const float weight = expf(score_of(q, key + head + static_cast<long long>(j) * kD) - maximum);
    sum += weight;
    for (int i = 0; i < kMine; ++i) result[i] += weight * __bfloat162float(value[head + static_cast<long long>(j) * kD + i]);
  }
  for (int i = 0; i < kMine; ++i) out[head + static_cast<long long>(row) * kD + i] = __float2bfloat16(result[i] / sum);
}

extern "C" void exercise(const __nv_bfloat16* query, const __nv_bfloat16* key, const __nv_bfloat16* value, __nv_bfloat16* out,
                         int heads, int s, int d, cudaStream_t stream) {
  const dim3 grid((s + kWarps - 1) / kWarps, heads);
  if (d == 64)
    kernel<64><<<grid, kWarps * 32, 0, stream>>>(query, key, value, out, s);
  else
    kernel<128><<<grid, kWarps * 32, 0, stream>>>(query, key, value, out, s);
}
