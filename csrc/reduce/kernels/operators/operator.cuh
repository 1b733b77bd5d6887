// An operator is a struct over the element type; its values are float or double. A State is kept for a part of an
// output, a Local by a thread for a strip of a row. push() takes n values, their maximum (not computed if unused) and the
// position of each; merge() joins two states; neutral() is a value that changes none. Merging in a fixed order gives the same
// bits on every run.
#pragma once
#include <cstdint>
#include <limits>

#include "device/bytes16.cuh"
#include "device/numeric.cuh"
#include "reduce/plan.h"

namespace xgemm::reduce {

// Elements as values (float or double): conversion, comparison, joins over lanes, stores.

/// Element -> value; minima are maxima of the flipped values (a sign flip, exact for every value).
template <class T>
struct Convert {
  int flip;
  __device__ explicit Convert(const Reduction& plan) : flip(plan.kind == Kind::amin || plan.kind == Kind::argmin ? -1 : 0) {}

  __device__ __forceinline__ Value<T> unflip(Value<T> v) const {
    if constexpr (std::is_same_v<Value<T>, float>)
      return __int_as_float(__float_as_int(v) ^ (flip & INT32_MIN));
    else
      return flip ? -v : v;
  }
  template <bool kOrdered>
  __device__ __forceinline__ Value<T> operator()(T x) const {
    const Value<T> v = convert<Value<T>>(x);
    return kOrdered ? unflip(v) : v;
  }
};

__device__ __forceinline__ bool is_nan(float x) { return x != x; }
__device__ __forceinline__ bool is_nan(double x) { return x != x; }

/// f(lanes / 2), f(lanes / 4), ... f(1): the levels at which `lanes` (1 to 32) neighbouring lanes are joined.
template <class F>
__device__ __forceinline__ void each_level(int lanes, const F& f) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2)
    if (offset < lanes) f(offset);
}

/// The largest value of `lanes` (1 to 32) neighbouring lanes, in each of them.
template <class V>
__device__ __forceinline__ V largest_of(V m, int lanes) {
  if constexpr (sizeof(V) == 4) {
    if (lanes == kWarpSize) {  // one instruction, on integers: floats in the order of integers, NaN on top
      const auto turn = [](int bits) { return bits ^ (bits >> 31 & INT32_MAX); };
      return __int_as_float(turn(__reduce_max_sync(kFullWarp, is_nan(m) ? INT32_MAX : turn(__float_as_int(m)))));
    }
  }
  each_level(lanes, [&](int offset) { m = larger(m, __shfl_xor_sync(kFullWarp, m, offset)); });
  return m;
}

/// map.offset() of positions `first`, first + step, ..., by one copy of the map's code: the offsets move up.
template <int n, class Position>
__device__ __forceinline__ void find_offsets(std::int64_t (&offset)[n], const IndexMap& map, Position first, int step) {
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
#pragma unroll
    for (int j = 1; j < n; ++j) offset[j - 1] = offset[j];
    offset[n - 1] = map.offset(first + i * step);
  }
}

/// op over get(first..first + n - 1), as a balanced tree.
template <int n, int first = 0, class Get, class F>
__device__ __forceinline__ auto tree(const Get& get, const F& op) {
  static_assert((n & (n - 1)) == 0);
  if constexpr (n == 1)
    return get(first);
  else
    return op(tree<n / 2, first>(get, op), tree<n / 2, first + n / 2>(get, op));
}

template <int n, class V>
__device__ __forceinline__ V maximum_of(const V (&x)[n]) {
  return tree<n>([&](int i) { return x[i]; }, [](V a, V b) { return larger(a, b); });
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, half> || std::is_same_v<T, bf16>;

/// The maximum of n vectors of 16-bit floats (flipped if kOrdered), two values per instruction.
template <class T, bool kOrdered, int n>
__device__ __forceinline__ float maximum_of_pairs(const uint4 (&raw)[n], const Convert<T>& convert) {
  const unsigned flip = kOrdered ? convert.flip & 0x80008000u : 0u;
  unsigned best[n];
#pragma unroll
  for (int j = 0; j < n; ++j)
    best[j] = larger_pair<T>(larger_pair<T>(raw[j].x ^ flip, raw[j].y ^ flip), larger_pair<T>(raw[j].z ^ flip, raw[j].w ^ flip));
  const unsigned pair = tree<n>([&](int j) { return best[j]; }, [](unsigned a, unsigned b) { return larger_pair<T>(a, b); });
  return larger(half_of<T>(pair, 0), half_of<T>(pair, 1));
}

/// Stores a sum or extremum as the output's dtype.
template <class V>
__device__ __forceinline__ void store_as(void* out, std::int64_t i, DType dtype, V value) {
  with_element_type<V>(dtype, [&]<class T>(Type<T>) { static_cast<T*>(out)[i] = convert<T>(value); });
}

/// Data that an output needs beside its elements, loaded ahead of its use: by aim() before and by look() after the row is read.
struct NoExtra {
  __device__ __forceinline__ void aim(const Reduction&, std::int64_t) {}
  template <bool kPlain, class T>
  __device__ __forceinline__ void look(const Reduction&, const T*) {}
};

/// Shared by operators that keep a State everywhere.
template <class Op, class S>
struct SimpleLocal {
  using Local = S;
  using Part = S;
  using Extra = NoExtra;
  static constexpr bool kOrdered = false, kFindsLater = false;
  static __device__ __forceinline__ S start() { return Op::identity(); }
  /// Joins the states of `lanes` (1 to 32) neighbouring lanes; all of them get the result.
  static __device__ __forceinline__ S join(S s, int lanes) {
    each_level(lanes, [&](int offset) { s = Op::merge(s, Op::shuffle(s, offset)); });
    return s;
  }
  template <class Convert, class Fetch>
  static __device__ __forceinline__ S state(S s, const Convert&, int lanes, bool, std::int64_t, const Fetch&) {
    return Op::join(s, lanes);
  }
};

}  // namespace xgemm::reduce
