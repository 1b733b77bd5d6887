// The operators: one struct each, over the value types float, double, int32 and int64. A State is kept for a part of an output,
// a Local by a thread for a strip of a row. push() takes n values, their maximum (not computed where unused) and the position
// of each; merge() joins two states. Merging in a fixed order gives the same bits on every run.
#pragma once
#include <cstdint>
#include <limits>

#include "device/bytes16.cuh"
#include "device/numeric.cuh"
#include "reduce/plan.h"

namespace xgemm::reduce {

/// 16-byte loads that a thread keeps in flight: a step.
inline constexpr int kUnroll = 4;

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
    if constexpr (std::is_same_v<Value<T>, float>)
      return __int_as_float(__float_as_int(v) ^ (flip & INT32_MIN));
    else if constexpr (std::is_same_v<Value<T>, double>)
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
      if constexpr (std::is_same_v<V, std::int32_t>) {
        return __reduce_max_sync(kFullWarp, m);
      } else {
        const auto turn = [](int bits) { return bits ^ (bits >> 31 & INT32_MAX); };
        return __int_as_float(turn(__reduce_max_sync(kFullWarp, is_nan(m) ? INT32_MAX : turn(__float_as_int(m)))));
      }
    }
  }
  each_level(lanes, [&](int offset) { m = larger(m, __shfl_xor_sync(kFullWarp, m, offset)); });
  return m;
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

template <int n, class V>
__device__ __forceinline__ V maximum_of(const V (&x)[n]) {
  return tree<n>([&](int i) { return x[i]; }, [](V a, V b) { return larger(a, b); });
}

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, half> || std::is_same_v<T, bf16>;

/// All ones in each half that equals `value`; NaN equals nothing.
__device__ __forceinline__ unsigned equal_pair(unsigned pair, half value) {
  half2 x;
  __builtin_memcpy(&x, &pair, 4);
  return __heq2_mask(x, __half2half2(value));
}
__device__ __forceinline__ unsigned equal_pair(unsigned pair, bf16 value) {
  __nv_bfloat162 x;
  __builtin_memcpy(&x, &pair, 4);
  return __heq2_mask(x, __bfloat162bfloat162(value));
}

/// The maximum of n vectors of 16-bit floats (flipped where kOrdered), two values an instruction.
template <class T, bool kOrdered, int n>
__device__ __forceinline__ float maximum_of_pairs(const uint4 (&raw)[n], const Convert<T>& convert) {
  const unsigned flip = kOrdered ? convert.flip & 0x80008000u : 0u;
  unsigned best[n];
#pragma unroll
  for (int j = 0; j < n; ++j)
    best[j] = larger_pair<T>(larger_pair<T>(raw[j].x ^ flip, raw[j].y ^ flip), larger_pair<T>(raw[j].z ^ flip, raw[j].w ^ flip));
  const unsigned pair = tree<n>([&](int j) { return best[j]; }, [](unsigned a, unsigned b) { return larger_pair<T>(a, b); });
  T halves[2];
  __builtin_memcpy(halves, &pair, 4);
  return larger(xgemm::convert<float>(halves[0]), xgemm::convert<float>(halves[1]));
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
      default: static_cast<std::uint8_t*>(out)[i] = dtype == DType::boolean ? value != 0 : static_cast<std::uint8_t>(value);
    }
  }
}

/// Data that an output needs beside its elements, loaded ahead of its use: a part before and a part after the row is read.
struct NoExtra {
  __device__ __forceinline__ void aim(const Plan&, std::int64_t) {}
  template <bool kPlain, class T>
  __device__ __forceinline__ void look(const Plan&, const T*) {}
};

/// Shared by operators whose Local is their State.
template <class Op, class S>
struct SimpleLocal {
  using Local = S;
  static constexpr bool kTotal = false, kFindsLater = false;
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

template <class T>
using SumState = Accumulator<std::conditional_t<std::is_same_v<T, Byte>, std::int32_t, T>>;

/// Sums and means: fp32 (fp64 for fp64) sums of trees; integers exactly, in int64.
template <class Element>
struct Sum : SimpleLocal<Sum<Element>, SumState<Element>> {
  using Extra = NoExtra;
  using T = Element;
  using V = Value<T>;
  using State = SumState<T>;
  static constexpr bool kOrdered = false;
  // The sum of one step of 16-bit or 8-bit integers fits int32; of int32 it does not.
  using Step = std::conditional_t<std::is_same_v<T, std::int32_t>, std::int64_t, V>;

  static __device__ __forceinline__ State identity() { return State{0}; }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V, Position) {
    s += tree<n>([&](int i) { return static_cast<Step>(x[i]); }, [](Step a, Step b) { return a + b; });
  }
  static __device__ __forceinline__ State merge(State a, State b) { return a + b; }
  static __device__ __forceinline__ State shuffle(State s, int offset) { return __shfl_xor_sync(kFullWarp, s, offset); }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    if constexpr (std::is_floating_point_v<State>)
      if (plan.kind == Kind::mean) s = s / static_cast<State>(plan.length);
    store_as(out, i, plan.out, s);
  }
};

template <class Element>
struct Maximum : SimpleLocal<Maximum<Element>, Value<Element>> {
  using Extra = NoExtra;
  using T = Element;
  using V = Value<T>;
  using State = V;
  static constexpr bool kOrdered = true;

  static __device__ __forceinline__ State identity() { return lowest<V>(); }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&)[n], V best, Position) {
    s = larger(s, best);
  }
  static __device__ __forceinline__ State merge(State a, State b) { return larger(a, b); }
  static __device__ __forceinline__ State shuffle(State s, int offset) { return __shfl_xor_sync(kFullWarp, s, offset); }
  static __device__ __forceinline__ State join(State s, int lanes) { return largest_of(s, lanes); }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>& convert, State s, const Extra&, void* out,
                                                std::int64_t i) {
    store_as(out, i, plan.out, convert.unflip(s));
  }
};

/// The first position of the largest value; the first NaN if there is one.
template <class Element>
struct MaximumIndex {
  using T = Element;
  using V = Value<T>;
  struct alignas(16) State {
    static constexpr int kBytes = sizeof(std::int64_t) + sizeof(V);  // the rest is never written
    std::int64_t index;
    V value;
  };
  // The step that holds the thread's maximum. The place within the step is looked up once per strip, by reading the step again;
  // in a row of one strip, with few steps, at once.
  struct Local {
    V value;
    std::uint32_t position;  // of the step's first element, or of the maximum; positions in a strip fit 32 bits
  };
  // For a column within a CTA; positions count from the CTA's first one.
  struct Part {
    V value;
    std::uint32_t position;
  };
  using Extra = NoExtra;
  static constexpr bool kOrdered = true, kTotal = false, kFindsLater = true;
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  static constexpr std::uint32_t kNoStep = std::numeric_limits<std::uint32_t>::max();

  static __device__ __forceinline__ State identity() { return {kNone, lowest<V>()}; }
  static __device__ __forceinline__ Local start() { return {lowest<V>(), kNoStep}; }
  static __device__ __forceinline__ bool beats(V a, V b) { return a > b || (is_nan(a) && !is_nan(b)); }
  static __device__ __forceinline__ bool ties(V a, V b) { return a == b || (is_nan(a) && is_nan(b)); }

  static __device__ __forceinline__ void keep(Local& s, const uint4 (&step)[kUnroll], V best, std::uint32_t position,
                                              int distance, bool now, const Convert<T>& convert) {
    if (!beats(best, s.value) && s.position != kNoStep) return;
    s = {best, position};
    if (now) s.position += offset_in(find(step, best, convert), distance);
  }
  static __device__ __forceinline__ void keep_one(Local& s, V value, std::uint32_t position) {
    if (beats(value, s.value) || s.position == kNoStep) s = {value, position};
  }
  static __device__ __forceinline__ std::uint32_t offset_in(int where, int distance) {
    constexpr int kWidth = Pack<T>::kCount;
    return static_cast<std::uint32_t>(where / kWidth * distance + where % kWidth);
  }
  static __device__ __forceinline__ State merge(State a, State b) {
    return (ties(a.value, b.value) ? a.index < b.index : beats(a.value, b.value)) ? a : b;
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.index, offset), __shfl_xor_sync(kFullWarp, s.value, offset)};
  }
  // A column that holds only the lowest value keeps the position of the start.
  static __device__ __forceinline__ Part start_part(int position) { return {lowest<V>(), static_cast<std::uint32_t>(position)}; }
  static __device__ __forceinline__ Part merge(Part a, Part b) {
    return (ties(a.value, b.value) ? a.position < b.position : beats(a.value, b.value)) ? a : b;
  }
  static __device__ __forceinline__ Part shuffle(Part s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.value, offset), __shfl_xor_sync(kFullWarp, s.position, offset)};
  }
  static __device__ __forceinline__ void push(Part (&s)[Pack<T>::kCount], const uint4& raw, int position,
                                              const Convert<T>& convert) {
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) {
      const V x = convert.template operator()<kOrdered>(as_pack<T>(raw).values[e]);
      if (beats(x, s[e].value)) s[e] = {x, static_cast<std::uint32_t>(position)};
    }
  }
  /// The positions of a column are every `repeat`-th element, from element `offset` on.
  static __device__ __forceinline__ State state(Part s, std::int64_t first, int repeat, int offset) {
    return {(first + s.position) * repeat + offset, s.value};
  }
  /// Which element of a step is the first to equal its maximum.
  static __device__ __forceinline__ int find(const uint4 (&step)[kUnroll], V maximum, const Convert<T>& convert) {
    constexpr int kWidth = Pack<T>::kCount;
    int where = 0;
    if (is_nan(maximum)) {
#pragma unroll
      for (int i = kUnroll * kWidth - 1; i >= 0; --i)
        if (is_nan(convert.template operator()<false>(as_pack<T>(step[i / kWidth]).values[i % kWidth]))) where = i;
    } else if constexpr (kIsHalf<T>) {
      const T best = xgemm::convert<T>(convert.unflip(maximum));
      std::uint32_t found = 0;  // bit j: the lower half of word j, bit 16 + j: the upper half
#pragma unroll
      for (int j = 0; j < 4 * kUnroll; ++j) {
        const unsigned word = reinterpret_cast<const unsigned*>(&step[j / 4])[j % 4];
        found |= equal_pair(word, best) & (0x10001u << j);
      }
      const int low = __ffs(static_cast<int>(found & 0xffff)), high = __ffs(static_cast<int>(found >> 16));
      where = min(low > 0 ? 2 * low - 2 : INT32_MAX, high > 0 ? 2 * high - 1 : INT32_MAX);
    } else {
      const V best = convert.unflip(maximum);
#pragma unroll
      for (int i = kUnroll * kWidth - 1; i >= 0; --i)
        if (convert.template operator()<false>(as_pack<T>(step[i / kWidth]).values[i % kWidth]) == best) where = i;
    }
    return where;
  }
  /// First the maximum over all lanes, then the first position among the lanes that hold it. fetch(step, position) reads a step
  /// again.
  template <class Fetch>
  static __device__ __forceinline__ State state(const Local& s, const Convert<T>& convert, int lanes, bool found,
                                                std::int64_t first, const Fetch& fetch) {
    const V best = largest_of(s.value, lanes);
    std::uint32_t index = kNoStep;
    if (ties(s.value, best) && s.position != kNoStep) {
      index = s.position;
      if (!found) {
        uint4 step[kUnroll];
        fetch(step, s.position);
        index += offset_in(find(step, best, convert), lanes * Pack<T>::kCount);
      }
    }
    if (lanes == kWarpSize)
      index = __reduce_min_sync(kFullWarp, index);
    else
      each_level(lanes, [&](int offset) { index = min(index, __shfl_xor_sync(kFullWarp, index, offset)); });
    return {first + index, best};
  }
  static __device__ __forceinline__ void finish(const Plan&, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    static_cast<std::int64_t*>(out)[i] = s.index;
  }
};

/// Bytes `selector` of b:a (prmt: the fourth bit of a nibble spreads the byte's sign).
__device__ __forceinline__ unsigned permute(unsigned a, unsigned b, unsigned selector) {
  unsigned r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(selector));
  return r;
}

/// MaximumIndex for columns of elements of up to 16 bits, in half of the instructions: value and reversed position share one
/// integer, so that the maximum integer is the first position of the largest value. A Part has 16 bits of position, counted
/// from the CTA's first one, a State 48.
template <class Element>
struct MaximumKey {
  using T = Element;
  using Part = std::int32_t;
  using State = std::int64_t;
  using Extra = NoExtra;
  static constexpr bool kOrdered = true, kTotal = false;
  static constexpr State kLast = (State{1} << 48) - 1;
  static constexpr int kFirst = static_cast<int>(kKeyPositions) - 1;  // position 0 reversed

  static __device__ __forceinline__ State identity() { return std::numeric_limits<State>::min(); }
  static __device__ __forceinline__ Part start_part(int) { return std::numeric_limits<Part>::min(); }
  template <class S>
  static __device__ __forceinline__ S merge(S a, S b) {
    return max(a, b);
  }
  template <class S>
  static __device__ __forceinline__ S shuffle(S s, int offset) {
    return __shfl_xor_sync(kFullWarp, s, offset);
  }
  /// Maps two 16-bit values to integers in the order of the values: -0 becomes +0, and every NaN the largest.
  static __device__ __forceinline__ unsigned in_order(unsigned pair, const Convert<T>& convert) {
    if constexpr (kIsHalf<T>) {
      const unsigned sign = convert.flip & 0x80008000u;
      unsigned y;
      if constexpr (std::is_same_v<T, half>)
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(pair), "r"(0x3c003c00u ^ sign), "r"(0));
      else
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(pair), "r"(0x3f803f80u ^ sign), "r"(0));
      return y ^ (permute(y, 0, 0xbb99) & 0x7fff7fffu);
    } else {
      return pair ^ static_cast<unsigned>(convert.flip);
    }
  }
  /// A vector of elements at `position` of the block: one for each of the parts.
  static __device__ __forceinline__ void push(Part (&s)[Pack<T>::kCount], const uint4& raw, int position,
                                              const Convert<T>& convert) {
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w}, turned = kFirst - position;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      if constexpr (sizeof(T) == 2) {
        const unsigned pair = in_order(words[w], convert);
        s[2 * w] = max(s[2 * w], static_cast<Part>(permute(turned, pair, 0x5410)));
        s[2 * w + 1] = max(s[2 * w + 1], static_cast<Part>(permute(turned, pair, 0x7610)));
      } else {
        const unsigned bytes = words[w] ^ static_cast<unsigned>(convert.flip) ^ static_cast<unsigned>(convert.bias) * 0x01010101u;
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          const unsigned value = bytes >> 8 * b & 0xff;
          s[4 * w + b] = max(s[4 * w + b], static_cast<Part>(value << 16 | (turned & 0xffff)));
        }
      }
    }
  }
  static __device__ __forceinline__ State state(Part s, std::int64_t first, int repeat, int offset) {
    return static_cast<State>(s >> 16) * (kLast + 1) + (kLast - (first + (kFirst - (s & 0xffff))) * repeat - offset);
  }
  static __device__ __forceinline__ void finish(const Plan&, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    static_cast<std::int64_t*>(out)[i] = kLast - (s & kLast);
  }
};

inline constexpr float kLn2 = 0.6931471805599453f;

/// The sum of e^(x - m), m finite or NaN and at least every x. In fp32 a term is 2^(x log2 e - m log2 e), one multiply-add and
/// one instruction of the special function unit; the rounding error of m log2 e is corrected once for the whole sum. For a
/// large m the error is too large to correct, and x - m is computed first.
template <int n, class V>
__device__ __forceinline__ V sum_of_exponentials(const V (&x)[n], V m) {
  const auto add = [](V a, V b) { return a + b; };
  if constexpr (std::is_same_v<V, float>) {
    if (fabsf(m) < 0x1p16f) {
      const float shift = __fmul_rn(m, kLog2E), p = -fmaf(m, kLog2E, -shift) * kLn2;  // e^-m = 2^-shift e^p, |p| < 2^-8
      const float sum = tree<n>([&](int i) { return exp2_approx(fmaf(x[i], kLog2E, -shift)); }, add);
      return sum * (1.0f + fmaf(0.5f * p, p, p));
    }
  }
  return tree<n>([&](int i) { return exp_of(x[i] - m); }, add);
}

/// Rescales the sums of `lanes` neighbouring lanes to their common maximum first: one exponential per lane instead of two per
/// level.
template <class Exponentials, class P>
__device__ __forceinline__ P join_pairs(P s, int lanes) {
  const auto m = largest_of(s.maximum, lanes);
  s.sum *= exp_of(s.maximum - Exponentials::base(m));
  each_level(lanes, [&](int offset) { s.sum += __shfl_xor_sync(kFullWarp, s.sum, offset); });
  return {m, s.sum};
}

/// (maximum m, sum of e^(x - m)): online softmax's pairs (Milakov and Gimelshein, arXiv 1805.02867).
template <class V>
struct alignas(2 * sizeof(V)) Pair {
  V maximum, sum;
};

template <class Element>
struct LogSumExp : SimpleLocal<LogSumExp<Element>, Pair<Value<Element>>> {
  using Extra = NoExtra;
  using T = Element;
  using V = Value<T>;
  using State = Pair<V>;
  static constexpr bool kOrdered = false;

  static __device__ __forceinline__ State identity() { return {lowest<V>(), V{0}}; }
  // An infinite maximum must not be subtracted from itself; 0 then gives exp(-inf) = 0 and exp(inf) = inf, as they should be.
  static __device__ __forceinline__ V base(V m) { return m == lowest<V>() || m == -lowest<V>() ? V{0} : m; }

  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V best, Position) {
    const V m = larger(s.maximum, best), b = base(m);
    s = {m, s.sum * exp_of(s.maximum - b) + sum_of_exponentials(x, b)};
  }
  static __device__ __forceinline__ State merge(State a, State b) {
    const V m = larger(a.maximum, b.maximum), c = base(m);
    return {m, a.sum * exp_of(a.maximum - c) + b.sum * exp_of(b.maximum - c)};
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.maximum, offset), __shfl_xor_sync(kFullWarp, s.sum, offset)};
  }
  static __device__ __forceinline__ State join(State s, int lanes) { return join_pairs<LogSumExp>(s, lanes); }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    if (plan.pairs)
      static_cast<State*>(out)[i] = s;
    else
      store_as(out, i, plan.out, base(s.maximum) + log(s.sum));
  }
};

/// The target, loaded before the row is read, and its logit, loaded before the lanes are joined; then the next target may be
/// loaded.
template <class T>
struct Target {
  std::int64_t target;
  T logit;  // converted at its use: converting waits for the load
  bool counts, exists;
  __device__ __forceinline__ void aim(const Plan& plan, std::int64_t i) { target = plan.loss.target[i]; }
  template <bool kPlain>
  __device__ __forceinline__ void look(const Plan& plan, const T* row) {
    counts = target != plan.loss.ignore_index;
    exists = target >= 0 && target < plan.length;
    if (exists) logit = row[kPlain ? target : plan.reduced.offset(target)];
  }
};

/// loss(m, log(sum), -log p(target)) for a target that counts; NaN for a target that is not a class and for an infinite
/// maximum, as in torch.
template <class T, class V, class F>
__device__ __forceinline__ void store_loss(const Plan& plan, const Pair<V>& pair, const Target<T>& extra, void* out,
                                           std::int64_t i, const F& smooth) {
  V loss = static_cast<V>(plan.loss.ignored);
  if (extra.counts) {
    const V m = pair.maximum;
    loss = std::numeric_limits<V>::quiet_NaN();
    if (extra.exists && LogSumExp<T>::base(m) == m) {
      const V log_sum = log(pair.sum);
      loss = smooth(m, log_sum, log_sum - (convert<V>(extra.logit) - m));
      loss += V{0};  // -0 means ignored
    }
  }
  store_as(out, i, plan.out, loss);
}

/// Cross-entropy of a row of logits with a class index: log(sum(exp(x))) - x[target].
template <class Element>
struct CrossEntropy : LogSumExp<Element> {
  using V = Value<Element>;
  using Extra = Target<Element>;
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<Element>&, const Pair<V>& s, const Extra& extra,
                                                void* out, std::int64_t i) {
    store_loss(plan, s, extra, out, i, [](V, V, V nll) { return nll; });
  }
};

template <class V>
struct LossState {  // padded to 4 V by the pair's alignment
  Pair<V> pair;
  V total;
};

/// The same with label smoothing, which takes the plain sum too: also - mean(x).
template <class Element>
struct SmoothCrossEntropy : SimpleLocal<SmoothCrossEntropy<Element>, LossState<Value<Element>>> {
  using T = Element;
  using V = Value<T>;
  using State = LossState<V>;
  using Exponentials = LogSumExp<T>;
  using Extra = Target<T>;
  static constexpr bool kOrdered = false, kTotal = true;

  static __device__ __forceinline__ State identity() { return {Exponentials::identity(), V{0}}; }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V best, Position position) {
    Exponentials::push(s.pair, x, best, position);
  }
  /// The plain sum of the same values, without those that only pad.
  template <int n, class Exists>
  static __device__ __forceinline__ void push_total(State& s, const V (&x)[n], Exists exists) {
    s.total += tree<n>([&](int i) { return exists(i) ? x[i] : V{0}; }, [](V a, V b) { return a + b; });
  }
  static __device__ __forceinline__ State merge(State a, State b) {
    return {Exponentials::merge(a.pair, b.pair), a.total + b.total};
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {Exponentials::shuffle(s.pair, offset), __shfl_xor_sync(kFullWarp, s.total, offset)};
  }
  static __device__ __forceinline__ State join(State s, int lanes) {
    each_level(lanes, [&](int offset) { s.total += __shfl_xor_sync(kFullWarp, s.total, offset); });
    return {Exponentials::join(s.pair, lanes), s.total};
  }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>&, const State& s, const Extra& extra,
                                                void* out, std::int64_t i) {
    store_loss(plan, s.pair, extra, out, i, [&](V m, V log_sum, V nll) {
      const V smoothing = static_cast<V>(plan.loss.smoothing);
      return (1 - smoothing) * nll + smoothing * (log_sum + (m - s.total / static_cast<V>(plan.length)));
    });
  }
};

template <class V>
struct alignas(2 * sizeof(V)) CountedSum {
  V sum, count;
};

/// The mean of the losses that are not -0; -0 marks an ignored target.
template <class Element>
struct MeanLoss : SimpleLocal<MeanLoss<Element>, CountedSum<Element>> {
  using Extra = NoExtra;
  using T = Element;
  using V = Element;
  using State = CountedSum<V>;
  static constexpr bool kOrdered = false;

  static __device__ __forceinline__ State identity() { return {V{0}, V{0}}; }
  template <int n, class Position>
  static __device__ __forceinline__ void push(State& s, const V (&x)[n], V, Position) {
    const auto add = [](V a, V b) { return a + b; };
    s.sum += tree<n>([&](int i) { return x[i]; }, add);
    s.count += tree<n>([&](int i) { return x[i] == 0 && signbit(x[i]) ? V{0} : V{1}; }, add);
  }
  static __device__ __forceinline__ State merge(State a, State b) { return {a.sum + b.sum, a.count + b.count}; }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.sum, offset), __shfl_xor_sync(kFullWarp, s.count, offset)};
  }
  static __device__ __forceinline__ void finish(const Plan& plan, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    store_as(out, i, plan.out, s.sum / s.count);
  }
};

}  // namespace xgemm::reduce
