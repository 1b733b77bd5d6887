// Element types in device code: the type of their values, conversions, and host dispatch from DType to a C++ type.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "device/dtype.h"

namespace xgemm {

using half = __half;
using bf16 = __nv_bfloat16;

/// Type in which floating elements of T are compared and added.
template <class T>
using Value = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class V>
__device__ __forceinline__ V minus_infinity() {
  return -std::numeric_limits<V>::infinity();
}

template <class To, class From>
__device__ __forceinline__ To convert(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (std::is_same_v<From, half>)
    return static_cast<To>(__half2float(x));
  else if constexpr (std::is_same_v<From, bf16>)
    return static_cast<To>(__bfloat162float(x));
  else if constexpr (std::is_same_v<To, half>)
    return __float2half_rn(static_cast<float>(x));
  else if constexpr (std::is_same_v<To, bf16>)
    return __float2bfloat16_rn(static_cast<float>(x));
  else
    return static_cast<To>(x);
}

/// The lower (e = 0) or upper (e = 1) 16-bit float of a word.
template <class T>
__device__ __forceinline__ float half_of(unsigned word, int e) {
  if constexpr (std::is_same_v<T, bf16>)
    return __builtin_bit_cast(float, e == 0 ? word << 16 : word & 0xffff0000u);
  else
    return __half2float(__ushort_as_half(static_cast<unsigned short>(word >> (16 * e))));
}

/// Two numbers as T in one register, the first in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float first, float second) {
  if constexpr (std::is_same_v<T, half>) {
    const __half2 pair = __floats2half2_rn(first, second);
    return reinterpret_cast<const std::uint32_t&>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }
}

/// The larger value; NaN is larger than everything.
template <class V>
__device__ __forceinline__ V larger(V a, V b) {
  if constexpr (std::is_same_v<V, float>) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
  } else if constexpr (std::is_same_v<V, double>) {
    return a > b || a != a ? a : b;
  } else {
    return a > b ? a : b;
  }
}

/// The same for each of the two 16-bit values T of a word.
template <class T>
__device__ __forceinline__ unsigned larger_pair(unsigned a, unsigned b) {
  unsigned r;
  if constexpr (std::is_same_v<T, half>)
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

/// 2^x in one instruction, to about an ulp; subnormal results are 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

inline constexpr float kLog2E = 1.4426950408889634f;
/// e^x for the terms of a sum whose largest term is 1: any fp32 sum of that size has an absolute error of 2^-24 anyway.
__device__ __forceinline__ float exp_of(float x) { return exp2_approx(x * kLog2E); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }

template <class T>
struct Type {
  using type = T;
};

/// Calls f(std::integral_constant<int, i>{}) with i = `index`, if it is under kCount.
template <int kCount, class F>
void with_index(int index, const F& f) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    ((index == kIndex ? f(std::integral_constant<int, kIndex>{}) : void()), ...);
  }(std::make_integer_sequence<int, kCount>{});
}

/// In kernels: calls f(Type<T>{}) for a dtype that is computed in Acc: f64 in double, f32 and half types in float.
template <class Acc = float, class F>
__device__ __forceinline__ void with_element_type(DType dtype, F&& f) {
  if constexpr (std::is_same_v<Acc, double>)
    f(Type<double>{});
  else if (dtype == DType::f32)
    f(Type<float>{});
  else if (dtype == DType::f16)
    f(Type<half>{});
  else
    f(Type<bf16>{});
}

/// Calls f(Type<T>{}) with the C++ type of a floating DType.
template <class F>
auto dispatch_floating(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f(Type<float>{});
    case DType::f16: return f(Type<half>{});
    case DType::bf16: return f(Type<bf16>{});
    case DType::f64: return f(Type<double>{});
    default: throw UnplannedDType();
  }
}

}  // namespace xgemm
