// An operator is a struct over the element type; its values are float or double. A State is kept for a part of an
// output, a Local by a thread for a strip of a row. push() takes n values, their maximum (not computed if unused) and the
// position of each; merge() joins two states; neutral() is a value that changes none. Merging in a fixed order gives the same
// bits on every run.
#pragma once
#include "reduce/kernels/operators/values.cuh"

namespace xgemm::reduce {

/// Data that an output needs beside its elements, loaded ahead of its use: by aim() before and by look() after the row is read.
struct NoExtra {
  __device__ __forceinline__ void aim(const Reduction&, std::int64_t) {}
  template <bool kPlain, class T>
  __device__ __forceinline__ void look(const Reduction&, const T*) {}
};

/// Shared by operators whose Local is their State.
template <class Op, class S>
struct SimpleLocal {
  using Local = S;
  static constexpr bool kFindsLater = false;
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
