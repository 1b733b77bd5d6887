// Shared by the softmax kernels: exponential, division, joining values across a CTA, output vectors.
#pragma once
#include <utility>

#include "device/bytes16.cuh"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "softmax/launch.h"

namespace xgemm::softmax {

inline constexpr int kMaxClusterBlocks = 16;

/// The part of a plan that the row kernels read. It is small because a short launch waits for its arguments.
struct Rows {
  std::int64_t outer, length;
  int lanes, steps;    ///< rows: threads per row, vectors per thread
  int chunk, cluster;  ///< shared: 16-byte vectors per block, blocks per row
  bool log;
};
inline Rows rows_of(const Plan& plan) {
  return {plan.outer, plan.length, plan.lanes, plan.steps, static_cast<int>(plan.chunk), plan.cluster, plan.log};
}

/// Calls f(const T* in, O* out) for one of six pairs of dtypes: the four floating ones, and 16 bits in with fp32 out.
template <class F>
void dispatch(const Plan& plan, const void* in, void* out, F&& f) {
  dispatch_floating(plan.in, [&]<class T>(Type<T>) {
    const T* const x = static_cast<const T*>(in);
    if constexpr (sizeof(T) == 2)
      if (plan.out == DType::f32) return f(x, static_cast<float*>(out));
    f(x, static_cast<T*>(out));
  });
}

inline Grid grid_of(const Plan& plan) { return early_grid(plan.blocks, plan.threads, plan.cluster); }
inline bool aligned16(const void* in, const void* out) { return is_aligned(in, 16) && is_aligned(out, 16); }

/// Evenly spaced rows; other rows have an IndexMap.
struct OneStride {
  std::int64_t stride;
  __device__ __forceinline__ std::int64_t offset(std::int64_t row) const { return row * stride; }
};

/// Elements in a register: two of 16 bits or one wider.
template <class T>
using Unit = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned>;
template <class T>
inline constexpr int kUnitCount = static_cast<int>(sizeof(Unit<T>) / sizeof(T));

template <class T>
__device__ __forceinline__ Value<T> element(Unit<T> unit, [[maybe_unused]] int e) {
  if constexpr (sizeof(T) == 8)
    return __longlong_as_double(static_cast<long long>(unit));
  else if constexpr (sizeof(T) == 4)
    return __uint_as_float(unit);
  else
    return half_of<T>(unit, e);
}
__device__ __forceinline__ unsigned as_unit(float x) { return __float_as_uint(x); }
__device__ __forceinline__ unsigned long long as_unit(double x) {
  return static_cast<unsigned long long>(__double_as_longlong(x));
}

/// A unit of -inf: it changes neither maximum nor sum.
template <class T>
__device__ __forceinline__ constexpr Unit<T> nothing() {
  if constexpr (sizeof(T) == 8) return 0xfff0000000000000ull;
  if constexpr (sizeof(T) == 4) return 0xff800000u;
  return std::is_same_v<T, bf16> ? 0xff80ff80u : 0xfc00fc00u;
}

/// 16 bytes of them.
template <class T>
__device__ __forceinline__ uint4 nothing16() {
  if constexpr (sizeof(T) == 8) return {0, 0xfff00000u, 0, 0xfff00000u};
  constexpr auto kUnit = static_cast<unsigned>(nothing<T>());
  return {kUnit, kUnit, kUnit, kUnit};
}

/// Elements of a block that are not from..to-1 become those of `fill`.
template <class T>
__device__ __forceinline__ void keep(Unit<T> (&units)[16 / sizeof(Unit<T>)], int from, int to, Unit<T> fill) {
  constexpr int kPer = kUnitCount<T>;
#pragma unroll
  for (int u = 0; u < static_cast<int>(16 / sizeof(Unit<T>)); ++u) {
    if constexpr (kPer == 1) {
      if (u < from || u >= to) units[u] = fill;
    } else {
      const bool low = 2 * u >= from && 2 * u < to, high = 2 * u + 1 >= from && 2 * u + 1 < to;
      units[u] = ((low ? units[u] : fill) & 0xffffu) | ((high ? units[u] : fill) & 0xffff0000u);
    }
  }
}

/// Makes the compiler forget values computed from a unit; it would keep two floats instead of one register.
template <class U>
__device__ __forceinline__ void forget(U& unit) {
  if constexpr (sizeof(U) == 4) asm volatile("" : "+r"(unit));
}

/// The largest element of many units; NaN is larger than everything.
template <class T>
struct Largest {
  Unit<T> m = nothing<T>();
  __device__ __forceinline__ void add(Unit<T> unit) {
    if constexpr (sizeof(T) == 2)
      m = larger_pair<T>(m, unit);
    else
      m = as_unit(larger(element<T>(m, 0), element<T>(unit, 0)));
  }
  __device__ __forceinline__ Value<T> value() const {
    if constexpr (sizeof(T) == 2) return larger(element<T>(m, 0), element<T>(m, 1));
    return element<T>(m, 0);
  }
};

/// The largest element of a thread's vectors of a row.
template <class T, int kSteps, int kUnits>
__device__ __forceinline__ Value<T> largest_of(const Unit<T> (&x)[kSteps][kUnits]) {
  Largest<T> largest;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) largest.add(x[k][u]);
  }
  return largest.value();
}

/// A sum that the compiler cannot fuse with a product: kernels for aligned and for other rows give the same bits.
__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }

/// exp(x) for x <= 0, times 2^bias where the output has 16 bits: the ex2 instruction flushes subnormal results, which torch
/// keeps. The division cancels the factor.
template <class O>
__device__ __forceinline__ float scaled_exp(float x, [[maybe_unused]] float bias) {
  if constexpr (sizeof(O) == 2)
    return exp2_approx(fmaf(x, kLog2E, bias));
  else
    return expf(x);
}
template <class O>
__device__ __forceinline__ double scaled_exp(double x, double) {
  return exp(x);
}
inline constexpr int kBias = 64;

/// exp(x - m) of a row's elements, where m is their maximum. A 16-bit softmax computes 2^(x scale + shift), one multiply-add:
/// scaled_exp's factor and the rounding error of m log2(e) are the same for the whole row and cancel in the division.
/// log_softmax subtracts first, because the logarithm of a sum near 1 would lose its digits; it uses ex2 in fp32 too, since
/// more exact terms would not make a sum of at least 1 more exact.
template <class O, class V>
struct Exponentials {
  V base;
  float scale = kLog2E, shift = 0;
  bool fast;
  __device__ __forceinline__ Exponentials(V m, bool log) : base(m), fast(log || sizeof(O) == 2) {
    if constexpr (sizeof(O) == 2) {
      if (log) return;
      // For a larger m in bf16 the next smaller value is 256 away, so e^(x - m) is 1 or 0.
      const bool small = fabsf(m) < 0x1p16f;
      base = 0;
      scale = small ? kLog2E : 1.0f;
      shift = fmaf(-m, scale, small ? kBias : 0.0f);
    }
  }
  __device__ __forceinline__ V operator()(V x) const {
    if constexpr (std::is_same_v<V, float>)
      if (fast) return exp2_approx(fmaf(x - base, scale, shift));
    return scaled_exp<O>(x - base, 0);
  }
};

/// Adds the exponentials of the first `steps` of a thread's vectors, relative to m, to sums[place in a vector modulo kSums]. In
/// fp32 and fp64 a softmax's exponentials replace their elements.
template <class T, class O, int kSteps, int kUnits, int kSums, class V>
__device__ __forceinline__ void add_exponentials(Unit<T> (&x)[kSteps][kUnits], int steps, V m, bool log, V (&sums)[kSums]) {
  constexpr int kPer = kUnitCount<T>;
  const auto add_all = [&](const Exponentials<O, V>& exponential, bool log) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k < steps) {
#pragma unroll
        for (int u = 0; u < kUnits; ++u) {
          forget(x[k][u]);
#pragma unroll
          for (int e = 0; e < kPer; ++e) {
            const V t = exponential(element<T>(x[k][u], e));
            V& sum = sums[(u * kPer + e) % kSums];
            sum = add(sum, t);
            if constexpr (std::is_same_v<T, V>)
              if (!log) x[k][u] = as_unit(t);
          }
          forget(x[k][u]);
        }
      }
    }
  };
  if (log)
    add_all(Exponentials<O, V>(m, true), true);
  else
    add_all(Exponentials<O, V>(m, false), false);
}

/// 1 / d of a sum of exponentials; if T has 16 bits, as results or their elements do, to an ulp of fp32.
template <class T, class V>
__device__ __forceinline__ V reciprocal(V d) {
  if constexpr (sizeof(T) == 2) {
    V r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
    return r;
  } else {
    return V{1} / d;
  }
}

/// e / d, given r = 1 / d and d >= 1 or NaN. Nearly always correctly rounded; for 16-bit inputs the product is exact enough.
template <class T, class V>
__device__ __forceinline__ V divide(V e, V d, V r) {
  const V q = e * r;
  if constexpr (sizeof(T) == 2)
    return q;
  else
    return fma(fma(-q, d, e), r, q);
}

/// Joins one value per warp over a CTA of `count` warps.
template <class V, class F>
__device__ __forceinline__ V join_warps(V value, V identity, int count, V* warps, F op) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  if (lane == 0) warps[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  return warp_reduce(lane < count ? warps[lane] : identity, op);
}

/// A thread's place among the `lanes` (1 to 32, or a CTA) threads of a row.
struct Place {
  int lanes, lane;
  std::int64_t row;
  bool exists, block;
  __device__ __forceinline__ Place(int row_lanes, std::int64_t outer) : lanes(row_lanes), block(row_lanes > kWarpSize) {
    const int thread = static_cast<int>(threadIdx.x), log2_lanes = 31 - __clz(lanes);
    lane = block ? thread : thread & (lanes - 1);
    row = block ? blockIdx.x
                : static_cast<std::int64_t>(blockIdx.x) * (static_cast<int>(blockDim.x) >> log2_lanes) + (thread >> log2_lanes);
    exists = row < outer;
  }
  /// Joins one value per thread over the row's threads.
  template <class V, class F>
  __device__ __forceinline__ V join(V value, V identity, V* warps, F op) const {
    value = reduce_lanes(value, min(lanes, kWarpSize), op);
    return block ? join_warps(value, identity, lanes / kWarpSize, warps, op) : value;
  }
  template <class V>
  __device__ __forceinline__ V largest(V value, V* warps) const {
    return join(value, minus_infinity<V>(), warps, [](V a, V b) { return larger(a, b); });
  }
  template <class V>
  __device__ __forceinline__ V sum(const V (&sums)[4], V* warps) const {
    return join((sums[0] + sums[2]) + (sums[1] + sums[3]), V{0}, warps, [](V a, V b) { return a + b; });
  }
};

/// Stores the first `count` values one by one.
template <class O, class V, int n>
__device__ __forceinline__ void store_singles(O* p, const V (&y)[n], int count = n) {
#pragma unroll
  for (int e = 0; e < n; ++e)
    if (e < count) p[e] = convert<O>(y[e]);
}

/// Stores the values of one input vector as output vectors at p (aligned to 16 bytes). kStreaming: L2 evicts them first.
template <class T, bool kStreaming = false, class O, class V>
__device__ __forceinline__ void store_aligned(O* p, const V (&y)[Pack<T>::kCount]) {
  constexpr int kCount = Pack<T>::kCount, kOut = Pack<O>::kCount;
#pragma unroll
  for (int i = 0; i < kCount; i += kOut) {
    Pack<O> pack;
#pragma unroll
    for (int e = 0; e < kOut; ++e) pack.values[e] = convert<O>(y[i + e]);
    if constexpr (kStreaming)
      __stcs(reinterpret_cast<uint4*>(p + i), as_raw(pack));
    else
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
    store_singles(p, y);
  }
}

/// n / d for a power of two d.
__device__ __forceinline__ int divide_pow2(int n, int d) { return n >> (31 - __clz(d)); }

}  // namespace xgemm::softmax
