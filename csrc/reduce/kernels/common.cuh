// Shared by the row and the column kernel: loads of 16-byte vectors of any alignment, padding, and the test for the last CTA.
#pragma once
#include "device/launch.h"
#include "reduce/kernels/operators/operator.cuh"

namespace xgemm::reduce {

/// What a thread keeps for a column within its CTA: a state, or fewer bytes.
template <class Op>
using Part = typename Op::Part;
template <class Op>
inline constexpr bool kPartIsLess = !std::is_same_v<Part<Op>, typename Op::State>;

/// Raw elements that change no result, for places past a row's end.
template <class Op>
__device__ __forceinline__ uint4 padding(const Reduction& plan) {
  return {plan.fill[0], plan.fill[1], plan.fill[2], plan.fill[3]};
}

/// Element e of a vector, as a value.
template <class Op>
__device__ __forceinline__ typename Op::V value_of(const Convert<typename Op::T>& convert, const uint4& raw, int e) {
  using T = typename Op::T;
  if constexpr (kIsHalf<T>) {  // by words: by elements each upper half takes one more instruction
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
    const float x = half_of<T>(words[e / 2], e % 2);
    return Op::kOrdered ? convert.unflip(x) : x;
  } else {
    return convert.template operator()<Op::kOrdered>(as_pack<T>(raw).values[e]);
  }
}

/// Adds n vectors of a split to an operator's state. Element e of vector j is at `position` + j * `distance` + e of the split.
/// `now`: look up at once where in a step the maximum is.
template <class Op, int n>
__device__ __forceinline__ void push_step(const Convert<typename Op::T>& convert, typename Op::Local& s, const uint4 (&raw)[n],
                                          int position, int distance, [[maybe_unused]] bool now) {
  using T = typename Op::T;
  using V = typename Op::V;
  constexpr int kWidth = Pack<T>::kCount;
  V x[n * kWidth];
#pragma unroll
  for (int i = 0; i < n * kWidth; ++i) x[i] = value_of<Op>(convert, raw[i / kWidth], i % kWidth);
  V best;
  if constexpr (kIsHalf<T>)
    best = maximum_of_pairs<T, Op::kOrdered>(raw, convert);
  else
    best = maximum_of(x);
  if constexpr (Op::kFindsLater) {
    uint4 step[kUnroll];  // of a single vector the first copy counts
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) step[j] = raw[j < n ? j : 0];
    Op::keep(s, step, best, static_cast<std::uint32_t>(position), distance, now, convert);
  } else {
    Op::push(s, x, best, [&](int i) { return position + i / kWidth * distance + i % kWidth; });
  }
}

/// The same for one element of a row's incomplete last vector, which starts at `position` of the split.
template <class Op>
__device__ __forceinline__ void push_single(const Convert<typename Op::T>& convert, typename Op::Local& s, typename Op::T raw,
                                            int position, int e, [[maybe_unused]] bool now) {
  const typename Op::V x[1] = { convert.template operator()<Op::kOrdered>(raw) };
  if constexpr (Op::kFindsLater)
    Op::keep_one(s, x[0], static_cast<std::uint32_t>(now ? position + e : position));
  else
    Op::push(s, x, x[0], [&](int) { return position + e; });
}

/// Adds a tree of n elements to a thread's state; the first is at `position`, others `step` apart.
template <class Op, int n, class Exists>
__device__ __forceinline__ void push_tree(const Convert<typename Op::T>& convert, typename Op::Local& s,
                                          const typename Op::T (&x)[n], int position, int step, const Exists& is_there) {
  if constexpr (Op::kFindsLater) {
#pragma unroll
    for (int j = 0; j < n; ++j)
      if (is_there(j)) push_single<Op>(convert, s, x[j], position, j * step, true);
  } else {
    typename Op::V values[n];
#pragma unroll
    for (int j = 0; j < n; ++j) values[j] = is_there(j) ? convert.template operator()<Op::kOrdered>(x[j]) : Op::neutral();
    typename Op::Local tree = Op::start();
    Op::push(tree, values, maximum_of(values), [&](int j) { return position + j * step; });
    s = Op::merge(s, tree);
  }
}

/// Loads elements of dtype `dtype` at in[offset(j)], those that exist(j), as values; all loads come before the first conversion.
template <class V, int n, class Offset, class Exists>
__device__ __forceinline__ void load_values(DType dtype, const void* in, V (&x)[n], const Offset& offset, const Exists& exists) {
  if constexpr (std::is_same_v<V, double>) {
#pragma unroll
    for (int j = 0; j < n; ++j)
      if (exists(j)) x[j] = static_cast<const double*>(in)[offset(j)];
  } else {
    unsigned raw[n] = {};
    const auto load = [&](const auto* p) {
#pragma unroll
      for (int j = 0; j < n; ++j)
        if (exists(j)) raw[j] = p[offset(j)];
    };
    if (dtype == DType::f32)
      load(static_cast<const unsigned*>(in));
    else
      load(static_cast<const unsigned short*>(in));
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float value = dtype == DType::f16 ? __half2float(__ushort_as_half(static_cast<unsigned short>(raw[j])))
                                              : __uint_as_float(dtype == DType::f32 ? raw[j] : raw[j] << 16);
      if (exists(j)) x[j] = value;
    }
  }
}

/// The first `count` elements of `raw`, then `fill`.
template <class T>
__device__ __forceinline__ uint4 first_elements(const uint4& raw, int count, const uint4& fill) {
  Pack<T> pack = as_pack<T>(raw);
  const Pack<T> other = as_pack<T>(fill);
#pragma unroll
  for (int e = 0; e < Pack<T>::kCount; ++e)
    if (e >= count) pack.values[e] = other.values[e];
  return as_raw(pack);
}

/// Loads steps of rows at any address as aligned 16-byte blocks. Each block is loaded once, by the lane whose vector starts in
/// it; shuffles pass the words that the previous lane needs. The rows of a warp have the same misalignment. Other work may be
/// done between ask() and take().
template <class T>
struct ShiftedRows {
  int lanes, lane;  // of a row

  /// Starts to load a step of aligned blocks, a lane's first at q, and the one behind them.
  __device__ __forceinline__ void ask_step(const char* q, uint4 (&raw)[kUnroll], uint4& behind) const {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) raw[j] = load_aligned16(q + j * lanes * 16);
    if (lane == 0) behind = load_aligned16(q + kUnroll * lanes * 16);
  }
  /// Starts to load vectors from + lane, from + lane + lanes, ... of the `vectors` at p. A block that reaches past `end` is not
  /// read whole.
  template <class End>
  __device__ __forceinline__ void ask(const T* p, int from, int vectors, uint4 (&raw)[kUnroll], uint4& behind,
                                      const End& end) const {
    const int step = kUnroll * lanes;
    const unsigned shift = misalignment(p);
    const char* const q = reinterpret_cast<const char*>(p) - shift + (from + lane) * 16;
    vectors -= from;
    if (step < vectors) return ask_step(q, raw, behind);
    // The last vector ends in a block of which `shift` bytes are the row's.
    const char* const last = q + (vectors - lane) * 16;
    const bool safe = last + 16 <= reinterpret_cast<const char*>(end());
    const int blocks = vectors > 0 && shift != 0 && safe ? vectors + 1 : vectors;
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      raw[j] = {};
      if (lane + j * lanes < blocks) raw[j] = load_aligned16(q + j * lanes * 16);
    }
    if (lane == 0 && step < blocks) behind = load_aligned16(q + step * 16);
    if (!safe && vectors > 0 && shift != 0 && lane == (vectors & (lanes - 1))) {
      const uint4 front = load_front<T>(last, shift);
#pragma unroll
      for (int j = 0; j < kUnroll; ++j)
        if (lane + j * lanes == vectors) raw[j] = front;
      if (step == vectors) behind = front;
    }
  }
  /// Shifts the loaded blocks into vectors; vectors out of bounds become `fill`.
  __device__ __forceinline__ void take(unsigned shift, int from, int vectors, uint4 (&raw)[kUnroll], const uint4& behind,
                                       const uint4& fill) const {
    shift_lanes<T>(raw, behind, lane, lanes, shift);
    if (from + kUnroll * lanes <= vectors) return;
#pragma unroll
    for (int j = 0; j < kUnroll; ++j)
      if (from + lane + j * lanes >= vectors) raw[j] = fill;
  }
};

/// Reads a state that another CTA of this launch has written, without the L1 cache.
template <class State>
__device__ __forceinline__ State load_state(const State* p) {
  State s;
  constexpr int kBytes = [] {
    if constexpr (requires { State::kBytes; })
      return State::kBytes;
    else
      return static_cast<int>(sizeof(State));
  }();
  constexpr int kWords = kBytes / 4;
  static_assert(kBytes % 4 == 0);
  unsigned words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __ldcg(reinterpret_cast<const unsigned*>(p) + i);
  __builtin_memcpy(&s, words, kBytes);
  return s;
}

/// True in every thread of the last CTA to finish: all partial results are then complete. `counter` starts and ends at zero.
__device__ __forceinline__ bool is_last_block(unsigned* counter, std::int64_t split) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(counter, static_cast<unsigned>(split - 1)) == static_cast<unsigned>(split - 1);
  __syncthreads();
  __threadfence();
  return last;
}

inline Grid grid_of(const Reduction& plan) { return early_grid(plan.ctas, plan.threads); }

}  // namespace xgemm::reduce
