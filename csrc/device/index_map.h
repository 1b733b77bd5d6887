// Linear index -> memory offset over a few dims, with divisions turned into multiplications. Host code fills it, kernels read it.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#define XGEMM_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define XGEMM_HOST_DEVICE inline
#endif

namespace xgemm {

/// Division of 0 <= n < 2^63 by a constant 1 <= divisor < 2^63: q = (high64(n * multiplier) + n) >> shift.
/// (Granlund and Montgomery, "Division by invariant integers using multiplication", figure 4.1.)
struct Divider {
  std::uint64_t divisor, multiplier;
  std::uint32_t shift;

  static Divider of(std::int64_t d) {
    Divider out{static_cast<std::uint64_t>(d), 0, 0};
    while ((std::uint64_t{1} << out.shift) < out.divisor) ++out.shift;
    __extension__ using Wide = unsigned __int128;
    const Wide excess = (Wide{1} << out.shift) - out.divisor;
    out.multiplier = static_cast<std::uint64_t>((excess << 64) / out.divisor) + 1;
    return out;
  }

  XGEMM_HOST_DEVICE std::int64_t divide(std::int64_t n) const {
    const auto u = static_cast<std::uint64_t>(n);
#ifdef __CUDA_ARCH__
    const std::uint64_t high = __umul64hi(u, multiplier);
#else
    __extension__ using Wide = unsigned __int128;
    const auto high = static_cast<std::uint64_t>((Wide{u} * multiplier) >> 64);
#endif
    return static_cast<std::int64_t>((high + u) >> shift);
  }
};

/// Dims from outermost to innermost; the linear index runs over them in row-major order. `out` is a second set of strides.
struct IndexMap {
  static constexpr int kMaxDims = 16;
  int dims = 0;
  Divider size[kMaxDims];
  std::int64_t stride[kMaxDims];
  std::int64_t out[kMaxDims];

  XGEMM_HOST_DEVICE std::int64_t offset(std::int64_t index) const {
    std::int64_t sum = 0;
    for (int d = dims - 1; d > 0; --d) {
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
    for (int d = dims - 1; d > 0; --d) {
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
