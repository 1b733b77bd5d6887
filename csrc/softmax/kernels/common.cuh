// What the softmax kernels share: the exponential, the division, values across a cluster, output vectors.
#pragma once
#include <cooperative_groups.h>

#include <cstdint>
#include <limits>

#include "device/bytes16.cuh"
#include "softmax/plan.h"

namespace xgemm::softmax {

inline constexpr int kMaxClusterBlocks = 16;

template <class T>
using Value = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
inline constexpr DType kDType = std::is_same_v<T, double> ? DType::f64 : DType::f32;  // as far as registers go

template <class V>
__device__ __forceinline__ V minus_infinity() {
  return -std::numeric_limits<V>::infinity();
}

/// The larger value; NaN is larger than everything.
__device__ __forceinline__ float larger(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ double larger(double a, double b) { return a > b || a != a ? a : b; }

/// exp(x) for x <= 0, as exact as the output's dtype needs: for 16 bits a rounded product with log2(e) does.
template <class O>
__device__ __forceinline__ float exp_for(float x) {
  if constexpr (sizeof(O) == 2)
    return exp2f(x * 1.4426950408889634f);
  else
    return expf(x);
}
template <class O>
__device__ __forceinline__ double exp_for(double x) {
  return exp(x);
}

/// e / d given r = 1 / d; d >= 1 or NaN. Correctly rounded but for rare cases; from 16-bit inputs the product is exact enough.
template <class T, class V>
__device__ __forceinline__ V divide(V e, V d, V r) {
  const V q = e * r;
  if constexpr (sizeof(T) == 2)
    return q;
  else
    return fma(fma(-q, d, e), r, q);
}

/// Announces that this block's shared memory may be written by its cluster; no wait.
__device__ __forceinline__ void cluster_arrive([[maybe_unused]] int cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster > 1) cooperative_groups::this_cluster().barrier_arrive();
#endif
}
__device__ __forceinline__ void cluster_wait([[maybe_unused]] int cluster) {
#if __CUDA_ARCH__ >= 900
  if (cluster > 1) cooperative_groups::this_cluster().barrier_wait();
#endif
}

/// slot[rank] of every block of the cluster = value. `to` counts the blocks.
template <class V>
__device__ __forceinline__ void push_to_block([[maybe_unused]] V* slot, [[maybe_unused]] V value, [[maybe_unused]] int to) {
#if __CUDA_ARCH__ >= 900
  *cooperative_groups::this_cluster().map_shared_rank(slot, static_cast<unsigned>(to)) = value;
#endif
}

/// n values of one input vector as output vectors at p (aligned to 16 bytes).
template <class T, class O, class V>
__device__ __forceinline__ void store_aligned(O* p, const V (&y)[Pack<T>::kCount]) {
  constexpr int kCount = Pack<T>::kCount, kOut = Pack<O>::kCount;
#pragma unroll
  for (int i = 0; i < kCount; i += kOut) {
    Pack<O> pack;
#pragma unroll
    for (int e = 0; e < kOut; ++e) pack.values[e] = convert<O>(y[i + e]);
    *reinterpret_cast<uint4*>(p + i) = as_raw(pack);
  }
}

/// The same at any address, by all lanes of a warp: lanes of a group of `width` hold neighbouring vectors (bytes16.cuh).
template <class T, class O, class V>
__device__ __forceinline__ void store_anywhere(O* p, const V (&y)[Pack<T>::kCount], bool valid, int width) {
  constexpr int kCount = Pack<T>::kCount;
  if constexpr (sizeof(T) == sizeof(O)) {
    Pack<O> pack;
#pragma unroll
    for (int e = 0; e < kCount; ++e) pack.values[e] = convert<O>(y[e]);
    store_shifted16(p, pack, valid, width);
  } else if (valid) {
#pragma unroll
    for (int e = 0; e < kCount; ++e) p[e] = convert<O>(y[e]);
  }
}

}  // namespace xgemm::softmax
