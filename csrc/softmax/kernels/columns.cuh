// Softmax over a dim that is not the fastest: [outer, length, columns], a tile of columns kept in the registers of a block or of a
// cluster of up to 16 blocks (sm_90) that share the length.
//
// Layouts: columns have stride 1, positions and outer groups lie anywhere; output contiguous; any alignment.
// Limits: 1024 threads / 4 lanes x 16 bytes' share of 16 values x 16 blocks: 16k positions in fp32, 8k in 16 bits.
// Architectures: sm_80 and later; clusters on sm_90.
// Floor: one read, one write, in pieces of 64 to 512 neighbouring bytes.
#pragma once
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

inline constexpr int kMaxTileColumns = 128;

/// Joins the values of the threads that share a column; every thread gets those of its own columns.
template <int kWidth, class V, class F>
__device__ __forceinline__ void join_columns(V (&value)[kWidth], V* shared, V* slots, V* result, const Plan& plan, F op) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int columns = plan.lanes * kWidth, warps = static_cast<int>(blockDim.x) / kWarpSize, c = static_cast<int>(threadIdx.x);
  const int mine = (static_cast<int>(threadIdx.x) & (plan.lanes - 1)) * kWidth;
#pragma unroll
  for (int e = 0; e < kWidth; ++e)
    for (int offset = kWarpSize / 2; offset >= plan.lanes; offset /= 2)
      value[e] = op(value[e], __shfl_xor_sync(kFullWarp, value[e], offset));
  if (lane < plan.lanes) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) shared[warp * columns + mine + e] = value[e];
  }
  __syncthreads();
  for (int i = c; i < columns; i += static_cast<int>(blockDim.x)) {
    V sum = shared[i];
    for (int w = 1; w < warps; ++w) sum = op(sum, shared[w * columns + i]);
    if (plan.cluster > 1) {
      const int rank = static_cast<int>(blockIdx.x % static_cast<unsigned>(plan.cluster));
      for (int to = 0; to < plan.cluster; ++to) push_to_block(slots + rank * columns + i, sum, to);
    } else {
      result[i] = sum;
    }
  }
  if (plan.cluster > 1) {
    cluster_arrive(plan.cluster);
    cluster_wait(plan.cluster);
    for (int i = c; i < columns; i += static_cast<int>(blockDim.x)) {
      V sum = slots[i];
      for (int b = 1; b < plan.cluster; ++b) sum = op(sum, slots[b * columns + i]);
      result[i] = sum;
    }
  }
  __syncthreads();
#pragma unroll
  for (int e = 0; e < kWidth; ++e) value[e] = result[mine + e];
}

template <class T, class O>
__global__ void __launch_bounds__(1024) softmax_columns(const __grid_constant__ Plan plan, const T* __restrict__ in,
                                                        O* __restrict__ out) {
  using V = Value<T>;
  constexpr int kWidth = Pack<T>::kCount, kSteps = column_values(kDType<T>) / kWidth;
  // 128 columns of 4 bytes or 64 of 8; a cluster's second exchange has slots of its own: others may still read the first ones.
  constexpr int kColumns = sizeof(V) == 8 ? kMaxTileColumns / 2 : kMaxTileColumns;
  __shared__ V shared[kWarpSize * kColumns], slots[2][kMaxClusterBlocks * kColumns], result[2][kColumns];
  cluster_arrive(plan.cluster);

  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int first = static_cast<int>(threadIdx.x) / lanes, rows = static_cast<int>(blockDim.x) / lanes;
  const std::int64_t group = blockIdx.x / static_cast<unsigned>(plan.cluster), part = blockIdx.x % static_cast<unsigned>(plan.cluster);
  const std::int64_t outer = group / plan.tiles, tile = group - outer * plan.tiles;
  const std::int64_t column = (tile * lanes + lane) * kWidth, n = part * plan.chunk + first;
  const std::int64_t end = min((part + 1) * plan.chunk, plan.length);
  const int steps = column < plan.columns && n < end ? static_cast<int>((end - n + rows - 1) / rows) : 0;
  const bool whole = column + kWidth <= plan.columns;
  const int count = whole ? kWidth : static_cast<int>(plan.columns - column);  // of this thread's columns that exist
  const T* p = in + plan.kept.offset(outer) + n * plan.length_stride + column;
  const std::int64_t step = rows * plan.length_stride;

  V x[kSteps * kWidth];
  if (whole && plan.aligned && misalignment(in) == 0) {
    uint4 raw[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; ++k, p += step)
      if (k < steps) raw[k] = load_aligned16(p);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      const Pack<T> pack = as_pack<T>(raw[k]);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[k * kWidth + e] = k < steps ? convert<V>(pack.values[e]) : minus_infinity<V>();
    }
  } else {
#pragma unroll
    for (int k = 0; k < kSteps; ++k, p += step) {
      Pack<T> pack = as_pack<T>(uint4{0, 0, 0, 0});
      if (k < steps) {
        if (whole) {
          pack = as_pack<T>(load_shifted16(p));
        } else {
#pragma unroll
          for (int e = 0; e < kWidth; ++e)
            if (e < count) pack.values[e] = p[e];
        }
      }
#pragma unroll
      for (int e = 0; e < kWidth; ++e) x[k * kWidth + e] = k < steps ? convert<V>(pack.values[e]) : minus_infinity<V>();
    }
  }

  V m[kWidth], d[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) {
    m[e] = x[e];
#pragma unroll
    for (int k = 1; k < kSteps; ++k) m[e] = larger(m[e], x[k * kWidth + e]);
  }
  cluster_wait(plan.cluster);  // the others' shared memory exists from here on
  join_columns(m, shared, slots[0], result[0], plan, [](V a, V b) { return larger(a, b); });

#pragma unroll
  for (int e = 0; e < kWidth; ++e) d[e] = V{0};
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if (k < steps) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        const V t = exp_for<O>(x[k * kWidth + e] - m[e]);
        d[e] += t;
        x[k * kWidth + e] = plan.log ? x[k * kWidth + e] - m[e] : t;
      }
    }
  }
  join_columns(d, shared, slots[1], result[1], plan, [](V a, V b) { return a + b; });

  V r[kWidth];
#pragma unroll
  for (int e = 0; e < kWidth; ++e) r[e] = plan.log ? log(d[e]) : V{1} / d[e];
  const bool out_aligned = misalignment(out) == 0 && plan.columns * static_cast<std::int64_t>(sizeof(O)) % 16 == 0;
  O* q = out + (outer * plan.length + n) * plan.columns + column;
#pragma unroll
  for (int k = 0; k < kSteps; ++k, q += rows * plan.columns) {
    V y[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      y[e] = plan.log ? x[k * kWidth + e] - r[e] : divide<T>(x[k * kWidth + e], d[e], r[e]);
    if (out_aligned) {
      if (k < steps && whole) store_aligned<T>(q, y);
    } else {
      store_anywhere<T>(q, y, k < steps && whole, lanes);
    }
    if (k < steps && !whole) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (e < count) q[e] = convert<O>(y[e]);
    }
  }
}

}  // namespace xgemm::softmax
