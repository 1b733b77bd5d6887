// Softmax of scale * x + mask.
//
// Architectures: sm_80 and later. Output contiguous.
// softmax_masked_rows: rows of stride 1 and of whole 16-byte vectors, a mask of stride 1 along them or none; any address (which
//   thread holds which element does not depend on it). A lane holds 16 logits (8 in fp64) in registers: rows of up to 16384
//   elements. Floor: one read of x, one of the mask without broadcast dims, one write.
//   Other rows of up to 16384 elements, of any strides: a lane takes single elements. The same floor.
// softmax_masked_any: any strides, dim and length: a block passes three times over a tile. Floor: three reads, one write.
#include "device/vector.cuh"
#include "softmax/kernels/common.cuh"
#include "softmax/plan.h"

namespace xgemm::softmax {

/// scale * x + mask; -inf if a bool mask is false, whatever x is.
template <class V, class M>
__device__ __forceinline__ V logit(V x, V scale, M mask) {
  if constexpr (std::is_same_v<M, bool>)
    return mask ? x * scale : minus_infinity<V>();
  else
    return fma(x, scale, convert<V>(mask));
}

/// f(p, true) with the mask at `offset`, f(p, false) without one. A call per kind of mask, so that elements do not test the kind.
template <class T, class F>
__device__ __forceinline__ void with_mask(MaskKind kind, const void* mask, std::int64_t offset, F f) {
  switch (kind) {
    case MaskKind::none: return f(static_cast<const T*>(nullptr), std::false_type{});
    case MaskKind::own: return f(static_cast<const T*>(mask) + offset, std::true_type{});
    case MaskKind::f32: return f(static_cast<const float*>(mask) + offset, std::true_type{});
    case MaskKind::boolean: return f(static_cast<const bool*>(mask) + offset, std::true_type{});
  }
}

template <bool kAligned, int kCount, class M>
__device__ __forceinline__ void load(const M* p, M (&values)[kCount]) {
  constexpr int kStep = kAligned ? std::min(kVectorWidth<M>, kCount) : 1;
#pragma unroll
  for (int i = 0; i < kCount; i += kStep) store_vector(values + i, load_vector<kStep>(p + i));
}

/// What a lane loads and stores at once: whole vectors (aligned: in the widest accesses), or single elements.
enum class Access : std::uint8_t { aligned, unaligned, elements };

template <class T, Access kAccess>
__global__ void __launch_bounds__(1024) softmax_masked_rows(const __grid_constant__ Masked plan, const T* __restrict__ in,
                                                            const void* __restrict__ mask, T* __restrict__ out) {
  using V = Value<T>;
  constexpr bool kAligned = kAccess == Access::aligned, kElements = kAccess == Access::elements;
  constexpr int kWidth = kElements ? 1 : Pack<T>::kCount, kSteps = kElements ? kElementSteps : masked_steps(sizeof(T));
  using Stride = std::conditional_t<kElements, std::int64_t, int>;
  __shared__ V warps[2][kWarpSize];
  const Place place(plan.lanes, plan.outer);
  const auto& [lanes, lane, row, exists, block] = place;
  const IndexMap::Pair at = plan.outer_map.offsets(exists ? row : 0);
  const int count = exists ? static_cast<int>(plan.length) / kWidth : 0, step = lanes * kWidth;
  const auto along = [](std::int64_t stride) { return static_cast<Stride>(kElements ? stride : 1); };  // a variable would spill
  const T* x = in + at.in + lane * kWidth * along(plan.input_stride);
  const Stride x_step = step * along(plan.input_stride), mask_step = step * along(plan.mask_stride);
  const V scale = static_cast<V>(plan.scale);

  V z[kSteps][kWidth];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) z[k][e] = minus_infinity<V>();
    if constexpr (kElements)
      if (lane + k * lanes < count) z[k][0] = convert<V>(x[k * x_step]);
  }
  const auto add_mask = [&]<class M, bool kMask>(const M* p, std::bool_constant<kMask>) {
    // Vectors of x and of the mask are loaded before the first use of either; single elements would take too many registers.
    T x_values[kSteps][kWidth];
    M m_values[kSteps][kWidth];
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      if (!kElements && lane + k * lanes < count) load<kAligned>(x + k * x_step, x_values[k]);
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      if (!kElements && kMask && lane + k * lanes < count) load<kAligned>(p + k * mask_step, m_values[k]);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (lane + k * lanes < count) {
#pragma unroll
        for (int e = 0; e < kWidth; ++e) {
          const V value = kElements ? z[k][e] : convert<V>(x_values[k][e]);
          if constexpr (kMask)
            z[k][e] = logit(value, scale, kElements ? p[k * mask_step] : m_values[k][e]);
          else
            z[k][e] = value * scale;
        }
      }
    }
  };
  with_mask<T>(plan.mask, mask, at.out + lane * kWidth * along(plan.mask_stride), add_mask);

  V m = minus_infinity<V>(), sums[4] = {};
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int e = 0; e < kWidth; ++e) m = larger(m, z[k][e]);
  }
  m = place.largest(m, warps[0]);
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if (k < plan.steps) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        z[k][e] = scaled_exp<T>(z[k][e] - m, kBias);
        V& sum = sums[(kWidth == 1 ? k : e) % 4];
        sum = add(sum, z[k][e]);
      }
    }
  }
  const V d = place.sum(sums, warps[1]), r = V{1} / d;
  T* y = out + row * plan.length + lane * kWidth;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if (lane + k * lanes < count) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) z[k][e] = divide<T>(z[k][e], d, r);
      if constexpr (kAligned)
        store_aligned<T>(y + k * step, z[k]);
      else
        store_singles(y + k * step, z[k]);
    }
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

  with_mask<T>(plan.mask, mask, o.out + c.out, [&]<class M, bool kMask>(const M* p, std::bool_constant<kMask>) {
    const auto at = [&](std::int64_t n) {
      const V value = convert<V>(x[n * plan.input_stride]);
      if constexpr (kMask) return logit(value, scale, p[n * plan.mask_stride]);
      return value * scale;
    };
    V m = minus_infinity<V>(), d = 0;
    for (std::int64_t n = first; n < end; n += rows) m = larger(m, at(n));
    m = join(m, shared[0], [](V a, V b) { return larger(a, b); });
    for (std::int64_t n = first; n < end; n += rows) d += scaled_exp<T>(at(n) - m, kBias);
    d = join(d, shared[1], [](V a, V b) { return a + b; });
    const V r = V{1} / d;
    T* y = out + outer * plan.length * plan.columns + column;
    for (std::int64_t n = first; n < end; n += rows)
      y[n * plan.columns] = convert<T>(divide<T>(scaled_exp<T>(at(n) - m, kBias), d, r));
  });
}

void launch_masked(const Masked& plan, const void* in, const void* mask, void* out, cudaStream_t stream) {
  dispatch_floating(plan.dtype, [&]<class T>(Type<T>) {
    const bool aligned = plan.aligned && aligned16(in, out) && is_aligned(mask, 16);
    const auto kernel = plan.kernel == MaskedKernel::any        ? softmax_masked_any<T>
                        : plan.kernel == MaskedKernel::elements ? softmax_masked_rows<T, Access::elements>
                        : aligned                               ? softmax_masked_rows<T, Access::aligned>
                                                                : softmax_masked_rows<T, Access::unaligned>;
    kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), 0, stream>>>(
        plan, static_cast<const T*>(in), mask, static_cast<T*>(out));
  });
}

}  // namespace xgemm::softmax
