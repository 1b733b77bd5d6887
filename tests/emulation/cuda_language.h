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

// Barriers and collectives.
inline void __syncthreads(emulation::Where where = emulation::Where::current()) { emulation::syncthreads(where); }
inline int __syncthreads_or(int value, emulation::Where where = emulation::Where::current()) {
  return emulation::syncthreads_count(value, where) != 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, emulation::Where where = emulation::Where::current()) {
  int nothing = 0;
  emulation::warp_collective(mask, &nothing, [](emulation::Arguments32) {}, "__syncwarp", where);
}

namespace emulation {

template <class T>
struct Shuffle {
  T value, result;
  int from;  ///< lane; -1: its own value
};
template <class T>
void shuffle_lanes(Arguments32 lanes) {
  for (void* const lane : lanes) {
    if (!lane) continue;
    auto& mine = *static_cast<Shuffle<T>*>(lane);
    if (mine.from < 0)
      mine.result = mine.value;
    else if (lanes[mine.from])
      mine.result = static_cast<const Shuffle<T>*>(lanes[mine.from])->value;
    else
      fail(text("a shuffle from lane ", mine.from, ", which does not take part"));
  }
}
template <class T>
T shuffle(unsigned mask, T value, int from, bool valid, Where where) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 2);
  Shuffle<T> mine{value, value, valid ? from : -1};
  warp_collective(mask, &mine, shuffle_lanes<T>, "__shfl_sync", where);
  return mine.result;
}
inline int lane_index() {
  return static_cast<int>((self->thread.x + self->block_dim.x * (self->thread.y + self->block_dim.y * self->thread.z)) % 32);
}

template <class T>
struct Reduction {
  T value;
  unsigned result;
};
template <class T, class F>
unsigned reduce_lanes(unsigned mask, T value, F, const char* name, Where where) {
  Reduction<T> mine{value, 0};
  warp_collective(
      mask, &mine,
      [](Arguments32 lanes) {
        bool first = true;
        unsigned result = 0;
        for (int i = 0; i < 32; ++i)
          if (lanes[i]) {
            const T x = static_cast<const Reduction<T>*>(lanes[i])->value;
            result = F{}(first, result, x, i), first = false;
          }
        for (void* const lane : lanes)
          if (lane) static_cast<Reduction<T>*>(lane)->result = result;
      },
      name, where);
  return mine.result;
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

/// A reduction over lanes: r is what those before have given, x the lane's value.
#define EMULATED_REDUCTION(Result, name, ...)                                                                   \
  template <class T>                                                                                            \
  Result name(unsigned mask, T value, emulation::Where where = emulation::Where::current()) {                   \
    const auto step = [](bool first, unsigned r, T x, int lane) { return static_cast<unsigned>(__VA_ARGS__); }; \
    return static_cast<Result>(emulation::reduce_lanes(mask, value, step, #name, where));                       \
  }
EMULATED_REDUCTION(unsigned, __ballot_sync, r | (x ? 1u : 0u) << lane)
EMULATED_REDUCTION(int, __any_sync, r | (x ? 1u : 0u))
EMULATED_REDUCTION(int, __all_sync, (first ? 1u : r) & (x ? 1u : 0u))
EMULATED_REDUCTION(T, __reduce_min_sync, first ? x : std::min(static_cast<T>(r), x))
EMULATED_REDUCTION(T, __reduce_max_sync, first ? x : std::max(static_cast<T>(r), x))
EMULATED_REDUCTION(T, __reduce_add_sync, r + static_cast<unsigned>(x))
#undef EMULATED_REDUCTION
