// argmax and argmin: MaximumIndex, and MaximumKey in its place for columns of 16-bit elements.
#pragma once
#include "reduce/kernels/operators/operator.cuh"

namespace xgemm::reduce {

/// All ones in each half that equals `value`; NaN equals nothing.
template <class T>
__device__ __forceinline__ unsigned equal_pair(unsigned pair, T value) {
  std::conditional_t<std::is_same_v<T, half>, half2, __nv_bfloat162> x, both{value, value};
  __builtin_memcpy(&x, &pair, 4);
  return __heq2_mask(x, both);
}

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
  // For a column within a CTA; positions count from the CTA's first one.
  struct Part {
    V value;
    std::uint32_t index;
  };
  // The step that holds the thread's maximum: the index of its first element, found again once per strip by reading the step; in
  // a row of one strip, with few steps, of the maximum at once. Positions in a strip fit 32 bits.
  using Local = Part;
  using Extra = NoExtra;
  static constexpr bool kOrdered = true, kFindsLater = true;
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  static constexpr std::uint32_t kNoStep = std::numeric_limits<std::uint32_t>::max();

  static __device__ __forceinline__ State identity() { return {kNone, minus_infinity<V>()}; }
  static __device__ __forceinline__ V neutral() { return minus_infinity<V>(); }
  static __device__ __forceinline__ Local start() { return {minus_infinity<V>(), kNoStep}; }
  static __device__ __forceinline__ bool beats(V a, V b) { return a > b || (is_nan(a) && !is_nan(b)); }
  static __device__ __forceinline__ bool ties(V a, V b) { return a == b || (is_nan(a) && is_nan(b)); }

  static __device__ __forceinline__ void keep(Local& s, const uint4 (&step)[kUnroll], V best, std::uint32_t position,
                                              int distance, bool now, const Convert<T>& convert) {
    if (!beats(best, s.value) && s.index != kNoStep) return;
    s = {best, position};
    if (now) s.index += offset_in(find(step, best, convert), distance);
  }
  static __device__ __forceinline__ void keep_one(Local& s, V value, std::uint32_t position) {
    if (beats(value, s.value) || s.index == kNoStep) s = {value, position};
  }
  static __device__ __forceinline__ std::uint32_t offset_in(int where, int distance) {
    constexpr int kWidth = Pack<T>::kCount;
    return static_cast<std::uint32_t>(where / kWidth * distance + where % kWidth);
  }
  template <class S>
  static __device__ __forceinline__ S merge(S a, S b) {
    return (ties(a.value, b.value) ? a.index < b.index : beats(a.value, b.value)) ? a : b;
  }
  static __device__ __forceinline__ State shuffle(State s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.index, offset), __shfl_xor_sync(kFullWarp, s.value, offset)};
  }
  static __device__ __forceinline__ Part shuffle(Part s, int offset) {
    return {__shfl_xor_sync(kFullWarp, s.value, offset), __shfl_xor_sync(kFullWarp, s.index, offset)};
  }
  // A column that holds only the lowest value keeps the position of the start.
  static __device__ __forceinline__ Part start_part(int position) {
    return {minus_infinity<V>(), static_cast<std::uint32_t>(position)};
  }
  static __device__ __forceinline__ void push(Part (&s)[Pack<T>::kCount], const uint4& raw, int position,
                                              const Convert<T>& convert) {
#pragma unroll
    for (int e = 0; e < Pack<T>::kCount; ++e) {
      const V x = convert.template operator()<kOrdered>(as_pack<T>(raw).values[e]);
      const bool better = bool(!(x <= s[e].value)) & bool(s[e].value == s[e].value);  // beats() without a branch
      s[e].value = better ? x : s[e].value;
      s[e].index = better ? static_cast<std::uint32_t>(position) : s[e].index;
    }
  }
  /// The positions of a column are every `repeat`-th element, from element `offset` on.
  static __device__ __forceinline__ State state(Part s, std::int64_t first, int repeat, int offset) {
    return {(first + s.index) * repeat + offset, s.value};
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
  /// The maximum over all lanes, then the first position among those that hold it. fetch(step, position) reads a step again.
  template <class Fetch>
  static __device__ __forceinline__ State state(const Local& s, const Convert<T>& convert, int lanes, bool found,
                                                std::int64_t first, const Fetch& fetch) {
    const V best = largest_of(s.value, lanes);
    std::uint32_t index = kNoStep;
    if (ties(s.value, best) && s.index != kNoStep) {
      index = s.index;
      if (!found) {
        uint4 step[kUnroll];
        fetch(step, s.index);
        index += offset_in(find(step, best, convert), lanes * Pack<T>::kCount);
      }
    }
    if (lanes == kWarpSize)
      index = __reduce_min_sync(kFullWarp, index);
    else
      each_level(lanes, [&](int offset) { index = min(index, __shfl_xor_sync(kFullWarp, index, offset)); });
    return {first + index, best};
  }
  static __device__ __forceinline__ void finish(const Reduction&, const Convert<T>&, State s, const Extra&, void* out,
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

/// MaximumIndex for columns of 16-bit elements, in half of the instructions: value and reversed position share one
/// integer, so that the maximum integer is the first position of the largest value. A Part has 16 bits of position, counted
/// from the CTA's first one, a State 48.
template <class Element>
struct MaximumKey {
  using T = Element;
  using Part = std::int32_t;
  using State = std::int64_t;
  using Extra = NoExtra;
  static constexpr bool kOrdered = true;
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
    const unsigned sign = convert.flip & 0x80008000u;
    unsigned y;
    if constexpr (std::is_same_v<T, half>)
      asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(pair), "r"(0x3c003c00u ^ sign), "r"(0));
    else
      asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(pair), "r"(0x3f803f80u ^ sign), "r"(0));
    return y ^ (permute(y, 0, 0xbb99) & 0x7fff7fffu);
  }
  /// A vector of elements at `position` of the block: one for each of the parts.
  static __device__ __forceinline__ void push(Part (&s)[Pack<T>::kCount], const uint4& raw, int position,
                                              const Convert<T>& convert) {
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w}, turned = kFirst - position;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const unsigned pair = in_order(words[w], convert);
      s[2 * w] = max(s[2 * w], static_cast<Part>(permute(turned, pair, 0x5410)));
      s[2 * w + 1] = max(s[2 * w + 1], static_cast<Part>(permute(turned, pair, 0x7610)));
    }
  }
  static __device__ __forceinline__ State state(Part s, std::int64_t first, int repeat, int offset) {
    return static_cast<State>(s >> 16) * (kLast + 1) + (kLast - (first + (kFirst - (s & 0xffff))) * repeat - offset);
  }
  static __device__ __forceinline__ void finish(const Reduction&, const Convert<T>&, State s, const Extra&, void* out,
                                                std::int64_t i) {
    static_cast<std::int64_t*>(out)[i] = kLast - (s & kLast);
  }
};

}  // namespace xgemm::reduce
