// Softmax of rows that stay in registers: 1 to 32 lanes a row, a block a row, or a cluster of up to 16 blocks a row (sm_90).
//
// Layouts: the row has stride 1, rows lie anywhere; output contiguous; any alignment (which thread holds which element does not
//   depend on it). Limits: 1024 threads x 16 blocks x 32 values (8 in fp64): 512k elements (128k); before sm_90 one block.
// Architectures: sm_80 and later; clusters on sm_90.
// Floor: one read, one write; an element costs one exp, two comparisons or additions, and a three-instruction division.
#pragma once
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// Joins one value of each thread over lanes, warps of the block and blocks of the cluster; every thread gets the result.
template <class V, class F>
__device__ __forceinline__ V join(V value, V identity, const Plan& plan, V* warps, V* slots, F op) {
  for (int offset = min(plan.lanes, kWarpSize) / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(kFullWarp, value, offset));
  if (plan.lanes <= kWarpSize) return value;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (lane == 0) warps[warp] = value;
  __syncthreads();
  value = lane < plan.lanes / kWarpSize ? warps[lane] : identity;
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(kFullWarp, value, offset));
  if (plan.cluster > 1) {
    if (static_cast<int>(threadIdx.x) < plan.cluster)
      push_to_block(slots + blockIdx.x % static_cast<unsigned>(plan.cluster), value, static_cast<int>(threadIdx.x));
    cluster_arrive(plan.cluster);
    cluster_wait(plan.cluster);
    value = slots[0];
    for (int i = 1; i < plan.cluster; ++i) value = op(value, slots[i]);
  }
  return value;
}

template <class T, class O>
__global__ void __launch_bounds__(1024) softmax_rows(const __grid_constant__ Plan plan, const T* __restrict__ in,
                                                     O* __restrict__ out) {
  using V = Value<T>;
  constexpr int kWidth = Pack<T>::kCount, kSteps = row_values(kDType<T>) / kWidth;
  __shared__ V warps[2][kWarpSize], slots[2][kMaxClusterBlocks];
  cluster_arrive(plan.cluster);

  const int lanes = plan.lanes, lane = lanes > kWarpSize ? static_cast<int>(threadIdx.x) : static_cast<int>(threadIdx.x) & (lanes - 1);
  std::int64_t row, part = 0;
  if (lanes > kWarpSize) {
    row = blockIdx.x / static_cast<unsigned>(plan.cluster);
    part = blockIdx.x % static_cast<unsigned>(plan.cluster);
  } else {
    row = static_cast<std::int64_t>(blockIdx.x) * (static_cast<int>(blockDim.x) / lanes) + static_cast<int>(threadIdx.x) / lanes;
  }
  const bool exists = row < plan.outer;
  const T* x_row = in + (exists ? plan.kept.offset(row) : 0);
  O* y_row = out + (exists ? row * plan.length : 0);
  const std::int64_t all = (plan.length + kWidth - 1) / kWidth;
  const std::int64_t end = exists ? min((part + 1) * plan.chunk, all) : 0, full = min(end, plan.length / kWidth);
  const std::int64_t first = part * plan.chunk + lane;
  const T* p = x_row + first * kWidth;
  // Steps of this thread that are whole vectors; `whole` itself is the incomplete one, if it is this thread's.
  const int whole = first < full ? static_cast<int>((full - first + lanes - 1) / lanes) : 0;
  const bool has_tail = end > full && first + static_cast<std::int64_t>(whole) * lanes == full;

  V x[kSteps * kWidth];
  if (plan.aligned && misalignment(in) == 0) {
    uint4 raw[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      if (k < whole) raw[k] = load_aligned16(p + k * lanes * kWidth);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const Pack<T> pack = as_pack<T>(raw[k]);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[k * kWidth + e] = k < whole ? convert<V>(pack.values[e]) : minus_infinity<V>();
    }
  } else {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint4 raw = {0, 0, 0, 0};
      if (k < whole) raw = load_shifted16(p + k * lanes * kWidth);
      const Pack<T> pack = as_pack<T>(raw);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[k * kWidth + e] = k < whole ? convert<V>(pack.values[e]) : minus_infinity<V>();
    }
  }
  const int tail_count = static_cast<int>(plan.length % kWidth);
  if (has_tail) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      if (k == whole) {
#pragma unroll
        for (int e = 0; e < kWidth; ++e)
          if (e < tail_count) x[k * kWidth + e] = convert<V>(p[k * lanes * kWidth + e]);
      }
  }
  const int steps = whole + (has_tail ? 1 : 0);

  V m = minus_infinity<V>();
#pragma unroll
  for (int i = 0; i < kSteps * kWidth; ++i) m = larger(m, x[i]);
  cluster_wait(plan.cluster);  // the others' shared memory exists from here on
  m = join(m, minus_infinity<V>(), plan, warps[0], slots[0], [](V a, V b) { return larger(a, b); });

  V sums[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) sums[e] = V{0};
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if (k < steps) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const V t = exp_for<O>(x[k * kWidth + e] - m);
        sums[e] += t;
        if (!plan.log) x[k * kWidth + e] = t;
      }
    }
  }
#pragma unroll
  for (int step = kWidth / 2; step > 0; step /= 2) {
#pragma unroll
    for (int e = 0; e < kWidth / 2; ++e)
      if (e < step) sums[e] += sums[e + step];
  }
  const V d = join(sums[0], V{0}, plan, warps[1], slots[1], [](V a, V b) { return a + b; });

  const V r = V{1} / d, log_d = plan.log ? log(d) : V{0};
  const bool out_aligned = misalignment(out) == 0 && plan.length * static_cast<std::int64_t>(sizeof(O)) % 16 == 0;
  O* q = y_row + first * kWidth;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    V y[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      y[e] = plan.log ? x[k * kWidth + e] - m - log_d : divide<T>(x[k * kWidth + e], d, r);
    O* to = q + static_cast<std::int64_t>(k) * lanes * kWidth;
    if (out_aligned) {
      if (k < whole) store_aligned<T>(to, y);
    } else {
      store_anywhere<T>(to, y, k < whole, min(lanes, kWarpSize));
    }
    if (has_tail && k == whole) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (e < tail_count) to[e] = convert<O>(y[e]);
    }
  }
}

}  // namespace xgemm::softmax
