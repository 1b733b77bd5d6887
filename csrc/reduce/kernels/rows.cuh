// Reduces rows: `lanes` threads (1 to 512) a row, or `split` blocks a row of which the last adds the partial results in order.
//
// Layouts: any strides. With plan.vector the row is made of runs of stride 1 and is read 16 bytes at a time at any alignment; else
//   element by element. Which thread reads which element depends on the row's length and strides only, not on its address.
// Architectures: sm_80 and later. Limits: none but IndexMap's dims; 64-bit positions.
// Floor: length * sizeof(T) bytes a row read once; one operation an element (logsumexp: one exp).
#pragma once
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

/// Joins the states of the `lanes` threads of a row; the row's first thread gets the result. `lanes` over 32: a whole block.
template <class Op>
__device__ __forceinline__ typename Op::State join_lanes(typename Op::State s, int lanes, typename Op::State* warps) {
  for (int offset = min(lanes, kWarpSize) / 2; offset > 0; offset /= 2) s = Op::merge(s, Op::shuffle(s, offset));
  if (lanes <= kWarpSize) return s;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  __syncthreads();  // `warps` may still be read from the call before
  if (lane == 0) warps[warp] = s;
  __syncthreads();
  s = lane < lanes / kWarpSize ? warps[lane] : Op::identity();
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) s = Op::merge(s, Op::shuffle(s, offset));
  return s;
}

template <class Op>
__global__ void __launch_bounds__(512) reduce_rows(const __grid_constant__ Plan plan, const typename Op::T* __restrict__ in,
                                                   void* __restrict__ out, unsigned* counters, typename Op::State* partials) {
  using T = typename Op::T;
  using V = typename Op::V;
  using State = typename Op::State;
  constexpr int kWidth = Pack<T>::kCount;
  __shared__ State warps[16];

  const Convert<T> convert(plan);
  const int lanes = plan.lanes, lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  std::int64_t row, part = 0;
  if (plan.split > 1) {
    row = blockIdx.x / static_cast<unsigned>(plan.split);
    part = blockIdx.x - row * plan.split;
  } else {
    row = static_cast<std::int64_t>(blockIdx.x) * (static_cast<int>(blockDim.x) / lanes) + static_cast<int>(threadIdx.x) / lanes;
  }
  const bool exists = row < plan.outputs;  // a warp may hold rows past the last one; they take part in shuffles only
  const IndexMap::Pair at = exists ? plan.kept.offsets(row) : IndexMap::Pair{0, 0};
  const T* base = in + at.in;

  State s = Op::identity();
  std::int64_t v = part * plan.chunk + lane;
  const std::int64_t all = (plan.length + kWidth - 1) / kWidth, end = exists ? min((part + 1) * plan.chunk, all) : 0;
  if (plan.vector) {
    const std::int64_t full = min(end, plan.length / kWidth);
    const bool aligned = plan.aligned && misalignment(base) == 0;
    for (; v < full; v += kUnroll * lanes) {
      uint4 raw[kUnroll];
      std::int64_t offset[kUnroll];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) offset[j] = plan.reduced.offset((v + j * lanes) * kWidth);
      if (aligned) {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          raw[j] = padding<Op>(plan);
          if (v + j * lanes < full) raw[j] = load_aligned16(base + offset[j]);
        }
      } else {
#pragma unroll
        for (int j = 0; j < kUnroll; ++j) {
          raw[j] = padding<Op>(plan);
          if (v + j * lanes < full) raw[j] = load_shifted16(base + offset[j]);
        }
      }
      V x[kUnroll * kWidth];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        const Pack<T> pack = as_pack<T>(raw[j]);
#pragma unroll
        for (int e = 0; e < kWidth; ++e) x[j * kWidth + e] = convert.template operator()<Op::kOrdered>(pack.values[e]);
      }
      Op::push(s, x, [&](int i) { return (v + (i / kWidth) * lanes) * kWidth + i % kWidth; });
    }
    v = full + lane;  // at most one vector is left: the row's incomplete last one
  }
  for (; v < end; v += lanes) {
    Pack<T> pack = as_pack<T>(padding<Op>(plan));
#pragma unroll
    for (int e = 0; e < kWidth; ++e)
      if (v * kWidth + e < plan.length) pack.values[e] = base[plan.reduced.offset(v * kWidth + e)];
    V x[kWidth];
#pragma unroll
    for (int e = 0; e < kWidth; ++e) x[e] = convert.template operator()<Op::kOrdered>(pack.values[e]);
    Op::push(s, x, [&](int e) { return v * kWidth + e; });
  }

  s = join_lanes<Op>(s, lanes, warps);
  if (plan.split > 1) {
    if (threadIdx.x == 0) partials[blockIdx.x] = s;
    if (!is_last_block(counters + row, plan.split)) return;
    s = Op::identity();
    for (std::int64_t i = threadIdx.x; i < plan.split; i += kUnroll * blockDim.x) {
      State part_states[kUnroll];
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        const std::int64_t k = i + j * static_cast<std::int64_t>(blockDim.x);
        part_states[j] = k < plan.split ? load_state(partials + row * plan.split + k) : Op::identity();
      }
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) s = Op::merge(s, part_states[j]);
    }
    s = join_lanes<Op>(s, lanes, warps);
  }
  if (exists && lane == 0) Op::finish(plan, convert, s, out, at.out);
}

}  // namespace xgemm::reduce
