// Integer arithmetic of host plans.
#pragma once
#include <bit>
#include <cstdint>

namespace xgemm {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The smallest multiple of b that is at least a.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

/// The smallest power of two that is at least n, for n >= 0.
constexpr std::int64_t round_up_pow2(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

}  // namespace xgemm
