// nvcc's additions to C++ in device code, for g++; included before everything else (build.py). translate.py rewrites what
// macros cannot express: __shared__ variables, asm statements, launches.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>

#include "emulation.h"

#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL
#undef __forceinline__
#define __forceinline__ inline
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __maxnreg__
#define __maxnreg__(...)
#define threadIdx (::emulation::self->thread)
#define blockIdx (::emulation::self->block)
#define blockDim (::emulation::self->block_dim)
#define gridDim (::emulation::self->grid_dim)

// Arithmetic.
template <class A, class B>
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmin(static_cast<C>(a), static_cast<C>(b));
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <class A, class B>
  requires(std::is_arithmetic_v<A> && std::is_arithmetic_v<B>)
constexpr std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  if constexpr (std::is_floating_point_v<C>) return std::fmax(static_cast<C>(a), static_cast<C>(b));
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
#define EMULATED_ROUNDED(T, name, operation)                      \
  inline T name(T a, T b) {                                       \
    volatile T result = a operation b; /* never a multiply-add */ \
    return result;                                                \
  }
EMULATED_ROUNDED(float, __fadd_rn, +)
EMULATED_ROUNDED(float, __fmul_rn, *)
EMULATED_ROUNDED(double, __dadd_rn, +)
EMULATED_ROUNDED(double, __dmul_rn, *)
#undef EMULATED_ROUNDED
inline float __fmul_ru(float a, float b) {
  const double exact = static_cast<double>(a) * b;
  const float near = static_cast<float>(exact);
  return near < exact ? std::nextafterf(near, INFINITY) : near;
}
inline float __fdividef(float a, float b) { return a / b; }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (shift & 31));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> 4 * i & 15, byte = static_cast<unsigned>(bytes >> 8 * (s & 7)) & 255;
    result |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return result;
}

// Memory.
inline void* __cvta_shared_to_generic(std::size_t address, emulation::Where where = emulation::Where::current()) {
  return emulation::shared_pointer(static_cast<std::uint32_t>(address), 1, 1, where);
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
inline void __threadfence() { emulation::maybe_yield(); }
template <class T, class F>
T emulated_atomic(T* p, F change) {
  emulation::maybe_yield();
  const T before = *p;
  *p = static_cast<T>(change(before));
  emulation::maybe_yield();
  return before;
}
#define EMULATED_ATOMIC(name, ...)                               \
  template <class T>                                             \
  T name(T* p, std::type_identity_t<T> x) {                      \
    return emulated_atomic(p, [&](T v) { return __VA_ARGS__; }); \
  }
EMULATED_ATOMIC(atomicAdd, v + x)
EMULATED_ATOMIC(atomicMax, std::max(v, x))
EMULATED_ATOMIC(atomicMin, std::min(v, x))
EMULATED_ATOMIC(atomicOr, v | x)
#undef EMULATED_ATOMIC
inline void __nanosleep(unsigned) { emulation::yield(true); }
inline long long clock64() { return emulation::clock_ticks(); }

// Collectives.
namespace emulation {

/// The values of a warp's lanes that take part in a collective.
template <class T>
struct Lanes {
  unsigned active = 0;
  T values[32];
};
template <class T>
Lanes<T> gather(unsigned mask, T value, const char* name, Where where) {
  struct Lane {
    T value;
    Lanes<T> all;
  } mine{value};
  const auto exchange = [](Arguments32 lanes) {
    Lanes<T> all;
    for (int i = 0; i < 32; ++i)
      if (lanes[i]) all.active |= 1u << i, all.values[i] = static_cast<const Lane*>(lanes[i])->value;
    for (void* const lane : lanes)
      if (lane) static_cast<Lane*>(lane)->all = all;
  };
  warp_collective(mask, &mine, exchange, name, where);
  return mine.all;
}

template <class T>
T shuffle(unsigned mask, T value, int from, bool valid, Where where) {
  const Lanes<T> lanes = gather(mask, value, "__shfl_sync", where);
  if (!valid) return value;
  if (!(lanes.active >> from & 1)) fail(text("a shuffle from lane ", from, ", which does not take part"), where);
  return lanes.values[from];
}
inline int lane_index() {
  return static_cast<int>((self->thread.x + self->block_dim.x * (self->thread.y + self->block_dim.y * self->thread.z)) % 32);
}

}  // namespace emulation

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, emulation::Where where = emulation::Where::current()) {
  const int lane = emulation::lane_index();
  return emulation::shuffle(mask, value, (lane & ~(width - 1)) | (from & (width - 1)), true, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, emulation::Where where = emulation::Where::current()) {
  const int lane = emulation::lane_index(), from = lane ^ bits;
  return emulation::shuffle(mask, value, from, from / width <= lane / width && from < 32, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, emulation::Where where = emulation::Where::current()) {
  const int lane = emulation::lane_index();
  return emulation::shuffle(mask, value, lane - static_cast<int>(by), lane % width >= static_cast<int>(by), where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, emulation::Where where = emulation::Where::current()) {
  const int lane = emulation::lane_index();
  return emulation::shuffle(mask, value, lane + static_cast<int>(by), lane % width + static_cast<int>(by) < width, where);
}

/// A reduction over lanes: r is what those before have given, `first` to begin with; x is the lane's value.
#define EMULATED_REDUCTION(Result, name, first, ...)                                          \
  template <class T>                                                                          \
  Result name(unsigned mask, T value, emulation::Where where = emulation::Where::current()) { \
    const emulation::Lanes<T> lanes = emulation::gather(mask, value, #name, where);           \
    Result r = first;                                                                         \
    for (int lane = 0; lane < 32; ++lane)                                                     \
      if (const T& x = lanes.values[lane]; lanes.active >> lane & 1) r = __VA_ARGS__;         \
    return r;                                                                                 \
  }
EMULATED_REDUCTION(unsigned, __ballot_sync, 0, r | (x ? 1u : 0u) << lane)
EMULATED_REDUCTION(int, __any_sync, 0, r | (x ? 1 : 0))
EMULATED_REDUCTION(int, __all_sync, 1, r&(x ? 1 : 0))
EMULATED_REDUCTION(T, __reduce_min_sync, value, std::min(r, x))
EMULATED_REDUCTION(T, __reduce_max_sync, value, std::max(r, x))
EMULATED_REDUCTION(T, __reduce_add_sync, 0, r + x)
#undef EMULATED_REDUCTION
