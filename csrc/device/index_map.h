// Linear index -> memory offset over a few dims, with divisions turned into multiplications: host code merges dims and fills the
// map, kernels read it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#define XGEMM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define XGEMM_HOST_DEVICE inline
#endif
/// In front of a loop: one copy of its body. nvcc's own choice is four, at every place that uses a map.
#ifdef __CUDA_ARCH__
#define XGEMM_ROLLED _Pragma("unroll 1")
#else
#define XGEMM_ROLLED
#endif

namespace xgemm {

__extension__ using Uint128 = unsigned __int128;

/// Division of 0 <= n <= Int's largest by a constant 1 <= divisor of the same range: q = (high half of n * multiplier + n) >>
/// shift. A division by a variable takes twenty instructions or more. (Granlund and Montgomery, "Division by invariant integers
/// using multiplication", figure 4.1.)
template <class Int, class Word, class Wide>
struct BasicDivider {
  Word divisor, multiplier;
  std::uint32_t shift;

  static constexpr BasicDivider of(std::int64_t d) {
    BasicDivider out{static_cast<Word>(d), 0, 0};
    while ((Word{1} << out.shift) < out.divisor) ++out.shift;
    const Wide excess = (Word{1} << out.shift) - out.divisor;
    out.multiplier = static_cast<Word>((excess << kBits) / out.divisor) + 1;
    return out;
  }

  XGEMM_HOST_DEVICE constexpr Int divide(Int n) const {
    const auto u = static_cast<Word>(n);
#ifdef __CUDA_ARCH__
    if constexpr (kBits == 64) return static_cast<Int>((__umul64hi(u, multiplier) + u) >> shift);
#endif
    return static_cast<Int>((static_cast<Word>((Wide{u} * multiplier) >> kBits) + u) >> shift);
  }

 private:
  static constexpr int kBits = 8 * sizeof(Word);
};
using Divider = BasicDivider<std::int64_t, std::uint64_t, Uint128>;
using ShortDivider = BasicDivider<int, std::uint32_t, std::uint64_t>;
static_assert(ShortDivider::of(1).divide(0x7fffffff) == 0x7fffffff && ShortDivider::of(2).divide(0x7fffffff) == 0x3fffffff);
static_assert(ShortDivider::of(7).divide(0x7fffffff) == 306783378 && ShortDivider::of(7).divide(6) == 0);
static_assert(ShortDivider::of(0x7fffffff).divide(0x7ffffffe) == 0 && ShortDivider::of(0x7fffffff).divide(0x7fffffff) == 1);

/// A dim that several operands are stepped through together.
template <std::size_t kOperands>
struct StridedDim {
  std::int64_t size;
  std::array<std::int64_t, kOperands> strides;
};

/// Appends `inner` behind `dims`, the outermost first: as one with the last if every operand steps through both as through one.
template <class Dims, std::size_t kOperands>
void append_merged(Dims& dims, const StridedDim<kOperands>& inner) {
  bool one = !dims.empty();
  for (std::size_t i = 0; one && i < kOperands; ++i) one = dims.back().strides[i] == inner.strides[i] * inner.size;
  if (one)
    dims.back() = {dims.back().size * inner.size, inner.strides};
  else
    dims.push_back(inner);
}

/// Dims from outermost to innermost; the linear index runs over them in row-major order. `out` is a second set of strides.
struct IndexMap {
  static constexpr int kMaxDims = 16;
  int dims = 0;
  // Set below `dims`, and stride[0] and out[0] always: clearing all of them would take longer than most plans.
  Divider size[kMaxDims];
  std::int64_t stride[kMaxDims], out[kMaxDims];

  XGEMM_HOST_DEVICE IndexMap() { stride[0] = out[0] = 0; }

  XGEMM_HOST_DEVICE std::int64_t offset(std::int64_t index) const {
    std::int64_t sum = 0;
    XGEMM_ROLLED for (int d = dims - 1; d > 0; --d) {
      const std::int64_t q = size[d].divide(index);
      sum += (index - q * static_cast<std::int64_t>(size[d].divisor)) * stride[d];
      index = q;
    }
    return dims > 0 ? sum + index * stride[0] : 0;
  }

  struct Pair {
    std::int64_t in, out;
  };
  XGEMM_HOST_DEVICE Pair offsets(std::int64_t index) const {
    Pair sum{0, 0};
    XGEMM_ROLLED for (int d = dims - 1; d > 0; --d) {
      const std::int64_t q = size[d].divide(index), i = index - q * static_cast<std::int64_t>(size[d].divisor);
      sum.in += i * stride[d];
      sum.out += i * out[d];
      index = q;
    }
    if (dims > 0) sum = {sum.in + index * stride[0], sum.out + index * out[0]};
    return sum;
  }
};

}  // namespace xgemm
