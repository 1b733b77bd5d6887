// Shared by the top-k kernels: unsigned keys in the elements' order, (key, index) pairs, vectors of a row, results.
#pragma once
#include "device/bytes16.cuh"
#include "topk_softmax/plan.h"

namespace xgemm::topk_softmax {

template <class V>
using Key = std::conditional_t<std::is_same_v<V, double>, unsigned long long, unsigned>;  // as shuffles and atomics name them

inline constexpr unsigned long long kSign = 1ull << 63;

/// Larger for larger values; -0 counts as 0, every NaN as the largest. 0 is no element's key.
__device__ __forceinline__ unsigned key_of(float x) {
  const unsigned bits = __float_as_uint(x + 0.0f);
  const unsigned key = bits ^ (static_cast<unsigned>(static_cast<int>(bits) >> 31) | 0x80000000u);
  return x != x ? ~0u : key;
}
__device__ __forceinline__ unsigned long long key_of(double x) {
  const auto bits = static_cast<unsigned long long>(__double_as_longlong(x + 0.0));
  const unsigned long long key = bits & kSign ? ~bits : bits ^ kSign;
  return x != x ? ~0ull : key;
}
/// The inverse; NaN for key 0 too.
__device__ __forceinline__ float value_of(unsigned key) { return __uint_as_float(key & 0x80000000u ? key ^ 0x80000000u : ~key); }
__device__ __forceinline__ double value_of(unsigned long long key) {
  return __longlong_as_double(static_cast<long long>(key & kSign ? key ^ kSign : ~key));
}

/// An element in total order: by value, then by lower index. {0, 0} is no element.
template <class V>
struct alignas(2 * sizeof(V)) Entry {
  Key<V> key;
  unsigned rest;  ///< ~index

  __device__ __forceinline__ unsigned index() const { return ~rest; }
};

template <class V>
__device__ __forceinline__ bool larger(const Entry<V>& a, const Entry<V>& b) {
  if constexpr (sizeof(V) == 4)
    return (std::uint64_t{a.key} << 32 | a.rest) > (std::uint64_t{b.key} << 32 | b.rest);
  else
    return a.key > b.key || (a.key == b.key && a.rest > b.rest);
}

/// Vectors first + step * 0, 1, .. of a row; elements past the row's end are -inf.
template <int kSteps, class T>
__device__ __forceinline__ void load_row(uint4 (&raw)[kSteps], const Plan& plan, const T* row, bool aligned, int first,
                                         int step) {
  constexpr int kWidth = Pack<T>::kCount;
  const int full = plan.vector ? static_cast<int>(plan.length / kWidth) : 0;  // vectors to be read as such
  if (aligned && first + (kSteps - 1) * step < full) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) raw[s] = load_aligned16(row + std::int64_t{first + s * step} * kWidth);
    return;
  }
  Pack<T> nothing;
#pragma unroll
  for (int e = 0; e < kWidth; ++e) nothing.values[e] = convert<T>(minus_infinity<Value<T>>());
#pragma unroll
  for (int s = 0; s < kSteps; ++s) raw[s] = as_raw(nothing);
#pragma unroll
  for (int s = 0; s < kSteps; ++s)
    if (first + s * step < full) raw[s] = load_shifted16(row + std::int64_t{first + s * step} * kWidth);
  if (first + (kSteps - 1) * step < full) return;
#pragma unroll
  for (int s = 0; s < kSteps; ++s) {
    const std::int64_t at = std::int64_t{first + s * step} * kWidth;
    if (first + s * step >= full && at < plan.length) {
      Pack<T> pack = nothing;
#pragma unroll
      for (int e = 0; e < kWidth; ++e)
        if (at + e < plan.length) pack.values[e] = row[(at + e) * plan.stride];
      raw[s] = as_raw(pack);
    }
  }
}

/// Result j of a row: its softmax and its index.
template <class T, class V>
__device__ __forceinline__ void store_result(const Plan& plan, void* values, std::int64_t* indices, std::int64_t row_at, int j,
                                             V value, unsigned index) {
  const std::int64_t at = row_at + j * plan.out_stride;
  if (sizeof(T) == 2 && plan.out == DType::f32)
    static_cast<float*>(values)[at] = static_cast<float>(value);
  else
    static_cast<T*>(values)[at] = convert<T>(value);
  indices[at] = index;
}

}  // namespace xgemm::topk_softmax
