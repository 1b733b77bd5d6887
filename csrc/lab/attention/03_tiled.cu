// Step 03, tiled: a block owns 64 rows and walks over the keys 64 at a time, on CUDA cores.
//
// Since step 02: K and V come to shared memory once for 64 rows, and a thread computes 4 x 4 scores and 4 x d / 16 outputs from
// registers (the SGEMM ladder's 2-d block tile). Maximum, factor and rescaling come once in 64 keys instead of once a key, and 16
// lanes share a row, so that a score costs 1 exponential and 1 shuffle. Weights reach their other users through shared
// memory. Limit: the FMA units, which also convert bf16 to fp32; 60 TFLOP/s at best.
#include "device/vector.cuh"
#include "lab/attention/rows.cuh"

namespace xgemm::lab::attention::step_03 {

constexpr int kRows = 64, kKeys = 64, kThreads = 256;
constexpr int kSide = 16, kEach = kRows / kSide;  // a thread's rows and keys: every 16th from (ty, tx)
static_assert(kRows == kKeys);

template <int kD>
using Tile = __nv_bfloat16[kRows][kD + 8];  // + 16 bytes: 16-byte accesses of 8 rows meet no bank conflict

template <int kD>
struct Shared {
  Tile<kD> query, key, value;
  float weights[kRows][kKeys + 4];
};

/// 64 rows from `row` on; zeros beyond s.
template <int kD>
__device__ __forceinline__ void load(Tile<kD>& tile, const __nv_bfloat16* head, const Problem& p, int row) {
  for (int i = threadIdx.x; i < kRows * kD / 8; i += kThreads) {
    const int r = i / (kD / 8), c = i % (kD / 8) * 8;
    const uint4 zeros = {0, 0, 0, 0};
    *reinterpret_cast<uint4*>(&tile[r][c]) =
        row + r < p.s ? *reinterpret_cast<const uint4*>(head + std::int64_t{row + r} * kD + c) : zeros;
  }
}

/// Neighbouring elements as fp32, by one access.
template <int kCount>
__device__ __forceinline__ void floats(float (&to)[kCount], const __nv_bfloat16* from) {
  const auto raw = load_vector<kCount>(from);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = __bfloat162float(raw[i]);
}

template <int kD>
__global__ void __launch_bounds__(kThreads, 2) kernel(const __grid_constant__ Problem p) {
  extern __shared__ __align__(16) unsigned char raw[];
  Shared<kD>& shared = *reinterpret_cast<Shared<kD>*>(raw);
  constexpr int kColumns = kD / kSide;  // of out: neighbours
  const int tx = threadIdx.x % kSide, ty = threadIdx.x / kSide, row0 = blockIdx.x * kRows;
  const std::int64_t head = std::int64_t{blockIdx.y} * p.s * kD;
  float out[kEach][kColumns] = {}, maximum[kEach], sum[kEach] = {};
#pragma unroll
  for (float& x : maximum) x = -INFINITY;
  load<kD>(shared.query, p.query + head, p, row0);

  const int keys = keys_of(p, row0 + kRows - 1);
  for (int key0 = 0; key0 < keys; key0 += kKeys) {
    __syncthreads();  // all have read the tile before
    load<kD>(shared.key, p.key + head, p, key0);
    load<kD>(shared.value, p.value + head, p, key0);
    __syncthreads();

    float scores[kEach][kEach] = {};
#pragma unroll 2
    for (int d = 0; d < kD; d += 8) {
      float q[kEach][8], k[8];
#pragma unroll
      for (int i = 0; i < kEach; ++i) floats(q[i], &shared.query[ty + kSide * i][d]);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        floats(k, &shared.key[tx + kSide * j][d]);
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int e = 0; e < 8; ++e) scores[i][j] += q[i][e] * k[e];
      }
    }

#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int visible = keys_of(p, row0 + ty + kSide * i) - key0;
      float largest = maximum[i];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        if (tx + kSide * j >= visible) scores[i][j] = -INFINITY;
        largest = fmaxf(largest, scores[i][j]);
      }
      largest = warp_reduce<kSide>(largest, [](float a, float b) { return fmaxf(a, b); });
      const float factor = exp2_approx((maximum[i] - largest) * p.scale_log2);
      maximum[i] = largest;
      sum[i] *= factor;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float weight = exp2_approx((scores[i][j] - largest) * p.scale_log2);
        sum[i] += weight;
        shared.weights[ty + kSide * i][tx + kSide * j] = weight;
      }
#pragma unroll
      for (float& x : out[i]) x *= factor;
    }
    __syncwarp();  // a row of weights is written and read by the same 16 lanes

#pragma unroll 2
    for (int j = 0; j < kKeys; j += 4) {
      Vector<float, 4> w[kEach];
      float v[kColumns];
#pragma unroll
      for (int i = 0; i < kEach; ++i) w[i] = load_vector<4>(&shared.weights[ty + kSide * i][j]);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        floats(v, &shared.value[j + e][tx * kColumns]);
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
          for (int c = 0; c < kColumns; ++c) out[i][c] += w[i][e] * v[c];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    sum[i] = warp_reduce<kSide>(sum[i], [](float a, float b) { return a + b; });
    const int row = row0 + ty + kSide * i;
    Vector<__nv_bfloat16, kColumns> result;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) result[c] = __float2bfloat16_rn(out[i][c] / sum[i]);
    if (row < p.s) store_vector(p.out + head + std::int64_t{row} * kD + tx * kColumns, result);
  }
}

const Step named_64 = step<64, kernel<64>, kRows, kThreads, sizeof(Shared<64>)>(3, "attention 03_tiled 64"),
           named_128 = step<128, kernel<128>, kRows, kThreads, sizeof(Shared<128>)>(3, "attention 03_tiled 128");

}  // namespace xgemm::lab::attention::step_03
