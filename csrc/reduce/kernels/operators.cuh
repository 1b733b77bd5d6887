// What a reduction does with an element: one struct an operator, over the value types float, double, int32 and int64. A State is
// what a thread keeps; push() takes n values and the position of each; merge() joins two states. Merging in a fixed order gives the
// same bits on every run.
#pragma once
#include <cstdint>
#include <limits>

#include "device/numeric.cuh"
#include "device/warp.cuh"
#include "reduce/plan.h"

namespace xgemm::reduce {

/// An 8-bit integer, signed or not (bool is unsigned): one kernel for all of them.
struct Byte {
  std::uint8_t raw;
};

/// The type in which values of T are compared and, within one step, added.
template <class T>
struct ValueOf {
  using type = float;
};
template <>
struct ValueOf<double> {
  using type = double;
};
template <>
struct ValueOf<std::int64_t> {
  using type = std::int64_t;
};
template <>
struct ValueOf<std::int32_t> {
  using type = std::int32_t;
};
template <>
struct ValueOf<std::int16_t> {
  using type = std::int32_t;
};
template <>
struct ValueOf<Byte> {
  using type = std::int32_t;
};
template <class T>
using Value = typename ValueOf<T>::type;

/// Element -> value; minima are maxima of the flipped values (a sign flip or a complement, exact for every value).
template <class T>
struct Convert {
  int flip, bias;
  __device__ explicit Convert(const Plan& plan)
      : flip(plan.kind == Kind::amin || plan.kind == Kind::argmin ? -1 : 0), bias(plan.in == DType::i8 ? 0x80 : 0) {}

  __device__ __forceinline__ Value<T> unflip(Value<T> v) const {
    if constexpr (std::is_floating_point_v<Value<T>>)
      return flip ? -v : v;
    else
      return v ^ static_cast<Value<T>>(flip);
  }
  template <bool kOrdered>
  __device__ __forceinline__ Value<T> operator()(T x) const {
    Value<T> v;
    if constexpr (std::is_same_v<T, Byte>)
      v = (x.raw ^ bias) - bias;
    else
      v = convert<Value<T>>(x);
    if constexpr (kOrdered) v = unflip(v);
    return v;
  }
};

__device__ __forceinline__ bool is_nan(float x) { return x != x; }
__device__ __forceinline__ bool is_nan(double x) { return x != x; }
__device__ __forceinline__ bool is_nan(std::int32_t) { return false; }
__device__ __forceinline__ bool is_nan(std::int64_t) { return false; }

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

template <class V>
__device__ __forceinline__ V lowest() {
  if constexpr (std::is_floating_point_v<V>)
    return -std::numeric_limits<V>::infinity();
  else
    return std::numeric_limits<V>::min();
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

/// Stores a sum, extremum or index of class Float, Double or integer as the output's dtype.
template <class V>
__device__ __forceinline__ void store_as(void* out, std::int64_t i, DType dtype, V value) {
  if constexpr (std::is_same_v<V, float>) {
    if (dtype == DType::f32)
      static_cast<float*>(out)[i] = value;
    else if (dtype == DType::f16)
      static_cast<half*>(out)[i] = convert<half>(value);
    else
      static_cast<bf16*>(out)[i] = convert<bf16>(value);
  } else if constexpr (std::is_same_v<V, double>) {
    static_cast<double*>(out)[i] = value;
  } else {
    switch (size_of(dtype)) {
      case 8: static_cast<std::int64_t*>(out)[i] = value; break;
      case 4: static_cast<std::int32_t*>(out)[i] = static_cast<std::int32_t>(value); break;
      case 2: static_cast<std::int16_t*>(out)[i] = static_cast<std::int16_t>(value); break;
      default:
        static_cast<std::uint8_t*>(out)[i] = dtype == DType::boolean ? value != 0 : static_cast<std::uint8_t>(value);
    }
  }
}

/// Sums and means: fp32 (fp64 for fp64) sums of trees; integers exactly, in int64.
template <class Element>
struct Sum {
  using T = Element;
  using V = Value<T>;
  using State = Accumulator<std::conditional_t<std::is_same_v<T, Byte>, std::int32_t, T>>;
  static constexpr bool kOrdered = false;
  // One step of 16-bit or 8-bit integers fits int32; of int32 it does not.
  using Step = std::conditional_t<std::is_same_v<T, std::int32_t>, std::int64_t, V>;

  static __device__ __forceinline__ State identity() { return State{0}; }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], Position) {
    s += tree<n>([&](int i) { return static_cast<Step>(x[i]); }, [](Step a, Step b) { return a + b; });
  }
  static __device__ __forceinline__ State merge(State a, State b) { return a + b; }
  static __device__ __forceinline__ State shuffle(State s, int offset) { return __shfl_xor_sync(kFullWarp, s, offset); }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>&, State s, void* out, std::int64_t i) {
    if constexpr (std::is_floating_point_v<State>)
      if (plan.kind == Kind::mean) s = s / static_cast<State>(plan.length);
    store_as(out, i, plan.out, s);
  }
};

template <class Element>
struct Maximum {
  using T = Element;
  using V = Value<T>;
  using State = V;
  static constexpr bool kOrdered = true;

  static __device__ __forceinline__ State identity() { return lowest<V>(); }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], Position) {
    s = larger(s, tree<n>([&](int i) { return x[i]; }, [](V a, V b) { return larger(a, b); }));
  }
  static __device__ __forceinline__ State merge(State a, State b) { return larger(a, b); }
  static __device__ __forceinline__ State shuffle(State s, int offset) { return __shfl_xor_sync(kFullWarp, s, offset); }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>& convert, State s, void* out, std::int64_t i) {
    store_as(out, i, plan.out, convert.unflip(s));
  }
};

/// The first position of the largest value; the first NaN if there is one.
template <class Element>
struct MaximumIndex {
  using T = Element;
  using V = Value<T>;
  struct alignas(16) State {
    std::int64_t index;
    V value;
  };
  static constexpr bool kOrdered = true;
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();

  static __device__ __forceinline__ State identity() { return {kNone, lowest<V>()}; }
  static __device__ __forceinline__ bool beats(V a, V b) { return a > b || (is_nan(a) && !is_nan(b)); }
  // Positions grow from one push to the next. Few steps hold a new maximum, so only those look for where it is.
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], Position position) {
    const V best = tree<n>([&](int i) { return x[i]; }, [](V a, V b) { return larger(a, b); });
    if (!beats(best, s.value) && s.index != kNone) return;
    int where = 0;
#pragma unroll
    for (int i = n - 1; i >= 0; --i)
      if (x[i] == best || is_nan(x[i])) where = i;
    s = {position(where), best};
  }
  static __device__ __forceinline__ State merge(State a, State b) {
    const bool tie = a.value == b.value || (is_nan(a.value) && is_nan(b.value));
    return (tie ? a.index < b.index : beats(a.value, b.value)) ? a : b;
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.index, offset), __shfl_xor_sync(kFullWarp, s.value, offset)};
  }
  static __device__ __forceinline__ void finish(const Plan&, const Convert<T>&, State s, void* out, std::int64_t i) {
    static_cast<std::int64_t*>(out)[i] = s.index;
  }
};

/// exp(x) for the terms of a sum whose largest is 1: an absolute error of 2^-24 is that of any fp32 sum.
__device__ __forceinline__ float exp_term(float x) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x * 1.4426950408889634f));
  return r;
}
__device__ __forceinline__ double exp_term(double x) { return exp(x); }

/// (maximum m, sum of exp(x - m)): online softmax's pairs (Milakov and Gimelshein, arXiv 1805.02867).
template <class Element>
struct LogSumExp {
  using T = Element;
  using V = Value<T>;
  struct alignas(2 * sizeof(V)) State {
    V maximum, sum;
  };
  static constexpr bool kOrdered = false;

  static __device__ __forceinline__ State identity() { return {lowest<V>(), V{0}}; }
  // An infinite maximum must not be subtracted from itself; 0 then gives exp(-inf) = 0 and exp(inf) = inf, as they should be.
  static __device__ __forceinline__ V base(V m) { return m == lowest<V>() || m == -lowest<V>() ? V{0} : m; }

  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], Position) {
    const V m = larger(s.maximum, tree<n>([&](int i) { return x[i]; }, [](V a, V c) { return larger(a, c); })), b = base(m);
    s.sum = s.sum * exp_term(s.maximum - b) +
            tree<n>([&](int i) { return exp_term(x[i] - b); }, [](V a, V c) { return a + c; });
    s.maximum = m;
  }
  static __device__ __forceinline__ State merge(State a, State b) {
    const V m = larger(a.maximum, b.maximum), c = base(m);
    return {m, a.sum * exp_term(a.maximum - c) + b.sum * exp_term(b.maximum - c)};
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.maximum, offset), __shfl_xor_sync(kFullWarp, s.sum, offset)};
  }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>&, State s, void* out, std::int64_t i) {
    if (plan.pairs)
      static_cast<State*>(out)[i] = s;
    else
      store_as(out, i, plan.out, base(s.maximum) + log(s.sum));
  }
};

}  // namespace xgemm::reduce
