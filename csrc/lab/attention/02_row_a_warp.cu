// Step 02, a row a warp: online softmax, so that scores are never stored.
//
// Since step 01: one kernel. A warp owns a row of Q and walks over the keys, one at a time; a lane holds d / 32 columns of q and
// out. With each key come a new maximum and a factor exp(old maximum - new maximum), by which the sum and out are rescaled (the
// softmax ladder's online recurrence carried on to out). Memory: nothing beside out. Limit: 5 shuffles, 2
// exponentials and 2 d / 32 rescaling multiplications a score, on one FMA a column and product; every row reads all of K and V
// for itself, from L1 and L2.
#include "device/vector.cuh"
#include "lab/attention/rows.cuh"

namespace xgemm::lab::attention::step_02 {

constexpr int kWarps = 8;  // neighbouring rows of one head, which find each other's keys in L1

template <int kD>
__global__ void __launch_bounds__(kWarps * 32, 6) kernel(const __grid_constant__ Problem p) {
  constexpr int kMine = kD / 32;
  const int row = blockIdx.x * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (row >= p.s) return;
  const std::int64_t head = std::int64_t{blockIdx.y} * p.s * kD + lane * kMine, mine = head + std::int64_t{row} * kD;
  const auto query = load_vector<kMine>(p.query + mine);
  float q[kMine], out[kMine] = {}, maximum = -INFINITY, sum = 0;
#pragma unroll
  for (int i = 0; i < kMine; ++i) q[i] = __bfloat162float(query[i]) * p.scale_log2;

  const int keys = keys_of(p, row);
  for (int j = 0; j < keys; ++j) {
    const auto k = load_vector<kMine>(p.key + head + std::int64_t{j} * kD);
    const auto v = load_vector<kMine>(p.value + head + std::int64_t{j} * kD);
    float score = 0;
#pragma unroll
    for (int i = 0; i < kMine; ++i) score += q[i] * __bfloat162float(k[i]);
    score = warp_reduce(score, [](float a, float b) { return a + b; });
    const float before = maximum;
    maximum = fmaxf(before, score);
    const float factor = exp2_approx(before - maximum), weight = exp2_approx(score - maximum);
    sum = sum * factor + weight;
#pragma unroll
    for (int i = 0; i < kMine; ++i) out[i] = out[i] * factor + weight * __bfloat162float(v[i]);
  }
  Vector<__nv_bfloat16, kMine> result;
#pragma unroll
  for (int i = 0; i < kMine; ++i) result[i] = __float2bfloat16_rn(out[i] / sum);
  store_vector(p.out + mine, result);
}

const Step named_64 = step<64, kernel<64>, kWarps, kWarps * 32>(2, "attention 02_row_a_warp 64"),
           named_128 = step<128, kernel<128>, kWarps, kWarps * 32>(2, "attention 02_row_a_warp 128");

}  // namespace xgemm::lab::attention::step_02
