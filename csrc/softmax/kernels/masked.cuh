// Softmax of scale * x + mask.
//
// Layouts: any strides of x and of the mask (0 where it is broadcast); output contiguous. Threads take single neighbouring elements,
//   so alignment plays no part. Architectures: sm_80 and later.
// softmax_masked_rows: the row's logits stay in registers of 1 to 32 lanes or of a block: 16384 elements (4096 in fp64).
//   Floor: one read of x, one of the mask as far as it is not broadcast, one write.
// softmax_masked_any: a block passes three times over a tile of columns; any dim, any length. Floor: three reads, one write.
#pragma once
#include "softmax/kernels/common.cuh"
#include "softmax/masked.h"

namespace xgemm::softmax {

/// f(g): g(i) is what the mask adds at offset i, -inf where a bool is false; one f a kind, so that no element asks which it is.
template <class T, class F>
__device__ __forceinline__ void with_mask(MaskKind kind, const void* mask, std::int64_t offset, F f) {
  using V = Value<T>;
  switch (kind) {
    case MaskKind::none: return f([](std::int64_t) { return V{0}; });
    case MaskKind::own: return f([p = static_cast<const T*>(mask) + offset](std::int64_t i) { return convert<V>(p[i]); });
    case MaskKind::f32: return f([p = static_cast<const float*>(mask) + offset](std::int64_t i) { return static_cast<V>(p[i]); });
    case MaskKind::boolean:
      return f([p = static_cast<const unsigned char*>(mask) + offset](std::int64_t i) { return p[i] ? V{0} : minus_infinity<V>(); });
  }
}

/// scale * x + mask; where a bool mask is false, -inf whatever x is.
template <class V>
__device__ __forceinline__ V logit(V x, V scale, V mask, bool boolean) {
  return boolean && mask != V{0} ? mask : fma(x, scale, mask);
}

template <class T>
__global__ void __launch_bounds__(1024) softmax_masked_rows(const __grid_constant__ Masked plan, const T* __restrict__ in,
                                                            const void* __restrict__ mask, T* __restrict__ out) {
  using V = Value<T>;
  constexpr int kValues = masked_values(kDType<T>);
  __shared__ V warps[2][kWarpSize];
  const int lanes = plan.lanes, thread = static_cast<int>(threadIdx.x), length = static_cast<int>(plan.length);
  const bool block = lanes > kWarpSize;
  const int log2_lanes = 31 - __clz(lanes), lane = block ? thread : thread & (lanes - 1);
  const std::int64_t row =
      block ? blockIdx.x : static_cast<std::int64_t>(blockIdx.x) * (static_cast<int>(blockDim.x) >> log2_lanes) + (thread >> log2_lanes);
  const bool exists = row < plan.outer;
  const IndexMap::Pair at = plan.outer_map.offsets(exists ? row : 0);
  const T* x = in + at.in;
  const int end = exists ? length : 0;
  const V scale = static_cast<V>(plan.scale);

  V z[kValues];
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    const int i = lane + k * lanes;
    z[k] = minus_infinity<V>();
    if (i < end) z[k] = convert<V>(x[i * plan.input_stride]);
  }
  const bool boolean = plan.mask == MaskKind::boolean;
  with_mask<T>(plan.mask, mask, at.out, [&](auto get) {
#pragma unroll
    for (int k = 0; k < kValues; ++k) {
      const int i = lane + k * lanes;
      if (i < end) z[k] = logit(z[k], scale, get(i * plan.mask_stride), boolean);
    }
  });

  V m = z[0];
#pragma unroll
  for (int k = 1; k < kValues; ++k) m = larger(m, z[k]);
  m = join_lanes(m, lanes, [](V a, V b) { return larger(a, b); });
  if (block) m = join_warps(m, minus_infinity<V>(), lanes / kWarpSize, warps[0], [](V a, V b) { return larger(a, b); });

  V sums[4] = {};
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    if (k * lanes < length) {
      z[k] = scaled_exp<T>(z[k] - m, kBias);
      sums[k % 4] += z[k];
    }
  }
  V d = join_lanes((sums[0] + sums[2]) + (sums[1] + sums[3]), lanes, [](V a, V b) { return a + b; });
  if (block) d = join_warps(d, V{0}, lanes / kWarpSize, warps[1], [](V a, V b) { return a + b; });

  const V r = V{1} / d;
  T* y = out + row * plan.length;
#pragma unroll
  for (int k = 0; k < kValues; ++k) {
    const int i = lane + k * lanes;
    if (i < end) y[i] = convert<T>(divide<T>(z[k], d, r));
  }
}

template <class T>
__global__ void __launch_bounds__(256, 4) softmax_masked_any(const __grid_constant__ Masked plan, const T* __restrict__ in,
                                                          const void* __restrict__ mask, T* __restrict__ out) {
  using V = Value<T>;
  __shared__ V shared[2][256];
  const int lanes = plan.lanes, rows = static_cast<int>(blockDim.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes, first = static_cast<int>(threadIdx.x) / lanes;
  const std::int64_t outer = blockIdx.x / plan.tiles, column = (blockIdx.x - outer * plan.tiles) * lanes + lane;
  const bool exists = column < plan.columns;
  const IndexMap::Pair o = plan.outer_map.offsets(outer), c = plan.column_map.offsets(exists ? column : 0);
  const T* x = in + o.in + c.in;
  const std::int64_t end = exists ? plan.length : 0;
  const V scale = static_cast<V>(plan.scale);
  const bool boolean = plan.mask == MaskKind::boolean;
  // Joins the threads of a column in a fixed order.
  const auto join = [&](V value, V* slots, auto op) {
    slots[threadIdx.x] = value;
    for (int step = rows / 2; step > 0; step /= 2) {
      __syncthreads();
      if (first < step) slots[threadIdx.x] = op(slots[threadIdx.x], slots[static_cast<int>(threadIdx.x) + step * lanes]);
    }
    __syncthreads();
    return slots[lane];
  };

  with_mask<T>(plan.mask, mask, o.out + c.out, [&](auto get) {
    const auto at = [&](std::int64_t n) {
      return logit(convert<V>(x[n * plan.input_stride]), scale, get(n * plan.mask_stride), boolean);
    };
    V m = minus_infinity<V>(), d = 0;
    for (std::int64_t n = first; n < end; n += rows) m = larger(m, at(n));
    m = join(m, shared[0], [](V a, V b) { return larger(a, b); });
    for (std::int64_t n = first; n < end; n += rows) d += scaled_exp<T>(at(n) - m, kBias);
    d = join(d, shared[1], [](V a, V b) { return a + b; });
    const V r = V{1} / d;
    T* y = out + outer * plan.length * plan.columns + column;
    for (std::int64_t n = first; n < end; n += rows) y[n * plan.columns] = convert<T>(divide<T>(scaled_exp<T>(at(n) - m, kBias), d, r));
  });
}

}  // namespace xgemm::softmax
