// Top k of short rows, several rows per warp. A group of up to 32 lanes keeps a row's keys in registers and finds one maximum per
// round. Each lane knows its own best key; only the lane whose element was taken looks for its next one.
//
// Layouts: any strides; 16-byte loads if the row has stride 1. Limits: 32 lanes x kValues elements per row.
// Architectures: sm_80 and later. Floor: one read of the rows, k * (value + 8) bytes written per row; k rounds of about
// 5 * kValues + 4 * log2(lanes) operations per group.
#pragma once
#include "topk_softmax/kernels/common.cuh"

namespace xgemm::topk_softmax {

template <class T, int kValues>
__global__ void __launch_bounds__(128, sizeof(T) == 8 ? 4 : 8)
    topk_rounds(const __grid_constant__ Plan plan, const T* __restrict__ in, void* __restrict__ values,
                std::int64_t* __restrict__ indices) {
  using V = Value<T>;
  using K = Key<V>;
  constexpr int kWidth = Pack<T>::kCount, kSteps = kValues / kWidth;
  extern __shared__ __align__(16) unsigned char shared[];
  const auto most = [](auto a, auto b) { return a > b ? a : b; };
  const auto least = [](auto a, auto b) { return a < b ? a : b; };
  const auto add = [](V a, V b) { return a + b; };

  const int lanes = plan.lanes, shift = __ffs(lanes) - 1;  // a power of two
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1), group = static_cast<int>(threadIdx.x) >> shift;
  const int groups = static_cast<int>(blockDim.x) >> shift;
  Entry<V>* const chosen = reinterpret_cast<Entry<V>*>(shared) + group * plan.k;
  const int length = static_cast<int>(plan.length);
  const bool aligned = plan.aligned && misalignment(in) == 0;

  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * groups; first < plan.rows;
       first += static_cast<std::int64_t>(gridDim.x) * groups) {
    const bool exists = first + group < plan.rows;
    const auto offset = plan.kept.offsets(exists ? first + group : 0);
    uint4 raw[kSteps];
    load_row(raw, plan, in + offset.in, aligned, lane, lanes);
    K keys[kValues], best = 0;
    int at = 0;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      const bool inside = (i / kWidth * lanes + lane) * kWidth + i % kWidth < length;
      keys[i] = inside ? key_of(convert<V>(as_pack<T>(raw[i / kWidth]).values[i % kWidth])) : K{0};
      if (keys[i] > best) best = keys[i], at = i;
    }

    V sum = 0;
    if (!plan.renormalize) {
      const V m = value_of(reduce_lanes(best, lanes, most));
#pragma unroll
      for (int i = 0; i < kValues; ++i) sum += keys[i] != 0 ? exp(value_of(keys[i]) - m) : V{0};
    }
    for (int j = 0; j < plan.k; ++j) {
      const K m = reduce_lanes(best, lanes, most);
      const auto mine = static_cast<unsigned>((at / kWidth * lanes + lane) * kWidth + at % kWidth);
      const unsigned winner = reduce_lanes(best == m ? mine : ~0u, lanes, least);
      if (lane == 0) chosen[j] = {m, ~winner};
      if (mine == winner) {
        const int gone = at;
        best = 0, at = 0;
#pragma unroll
        for (int i = 0; i < kValues; ++i) {
          if (i == gone) keys[i] = 0;
          if (keys[i] > best) best = keys[i], at = i;
        }
      }
    }
    __syncwarp();
    const V m = value_of(chosen[0].key);
    if (plan.renormalize)
      for (int j = lane; j < plan.k; j += lanes) sum += exp(value_of(chosen[j].key) - m);
    sum = reduce_lanes(sum, lanes, add);
    if (exists)
      for (int j = lane; j < plan.k; j += lanes)
        store_result<T>(plan, values, indices, offset.out, j, exp(value_of(chosen[j].key) - m) / sum, chosen[j].index());
    __syncwarp();
  }
}

}  // namespace xgemm::topk_softmax
