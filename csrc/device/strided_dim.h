// A dim that several operands are stepped through together, and merging neighbouring ones. Host code.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace xgemm {

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

}  // namespace xgemm
