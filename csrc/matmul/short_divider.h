// Division of 32-bit numbers by a number that the host knows: three instructions, where a division is a chain of twenty, which is
// what a warp alone on its scheduler waits for.
#pragma once
#include "device/index_map.h"

namespace xgemm {

/// Division of 0 <= n < 2^31 by a constant 1 <= divisor < 2^31: Divider's method, in 32 bits.
struct ShortDivider {
  std::uint32_t divisor, multiplier, shift;

  static constexpr ShortDivider of(std::int64_t d) {
    ShortDivider out{static_cast<std::uint32_t>(d), 0, 0};
    while ((std::uint64_t{1} << out.shift) < out.divisor) ++out.shift;
    const std::uint64_t excess = (std::uint64_t{1} << out.shift) - out.divisor;
    out.multiplier = static_cast<std::uint32_t>((excess << 32) / out.divisor + 1);
    return out;
  }

  XGEMM_HOST_DEVICE constexpr int divide(int n) const {
    const auto u = static_cast<std::uint32_t>(n);
    return static_cast<int>((static_cast<std::uint32_t>((std::uint64_t{u} * multiplier) >> 32) + u) >> shift);
  }
};
static_assert(ShortDivider::of(1).divide(0x7fffffff) == 0x7fffffff && ShortDivider::of(2).divide(0x7fffffff) == 0x3fffffff);
static_assert(ShortDivider::of(7).divide(0x7fffffff) == 306783378 && ShortDivider::of(7).divide(6) == 0);
static_assert(ShortDivider::of(0x7fffffff).divide(0x7ffffffe) == 0 && ShortDivider::of(0x7fffffff).divide(0x7fffffff) == 1);

}  // namespace xgemm
