// Argument checks of the lab's ops. They run before CudaScope's check of the device, so that a message does not depend on the
// machine.
#pragma once
#include <algorithm>
#include <array>
#include <string>

#include "torch/tensor.h"

namespace xgemm::lab {

/// Row-major without gaps.
inline void check_contiguous(const TensorView& v) {
  std::int64_t step = 1;
  bool contiguous = true;
  for (std::int64_t d = v.dim(); d-- > 0;) {
    contiguous = contiguous && (v.size(d) == 1 || v.stride(d) == step);
    step *= v.size(d);
  }
  check(contiguous || step == 0, v.op, "expected ", v.name, " to be contiguous, got shape ", to_string(v.sizes), " with strides ",
        to_string(v.strides));
}

/// A contiguous matrix.
inline void check_matrix(const TensorView& v, ScalarType dtype = ScalarType::Float) {
  check_dtype(v, {dtype});
  check(v.dim() == 2, v.op, "expected ", v.name, " to be a matrix, got shape ", to_string(v.sizes));
  check_contiguous(v);
}

/// The place of `value` among these names, or an error that lists them.
inline std::size_t place_of(const char* op, const char* name, const std::string& value,
                            std::initializer_list<const char*> allowed) {
  const auto* const found = std::ranges::find(allowed, value);
  if (found != allowed.end()) return static_cast<std::size_t>(found - allowed.begin());
  std::string list;
  for (const char* const& one : allowed) list += std::string(list.empty() ? "" : &one == allowed.end() - 1 ? " or " : ", ") + one;
  fail(op, "expected ", name, " to be ", list, ", got ", value);
}

/// A result for the host.
inline Tensor host_numbers(TensorView like, std::initializer_list<std::int64_t> numbers) {
  like.cuda = false;
  const std::array<std::int64_t, 1> shape{static_cast<std::int64_t>(numbers.size())};
  const Tensor out = empty(shape, ScalarType::Long, like);
  std::ranges::copy(numbers, static_cast<std::int64_t*>(view("lab", "out", out).data));
  return out;
}

/// a (m, k) and b (n, k): m and n in multiples of `multiple`, k of `multiple_k`, and so few that gridDim.y counts the tiles.
inline void check_whole_tiles(const TensorView& a, const TensorView& b, std::int64_t multiple, std::int64_t multiple_k) {
  const auto whole = [](std::int64_t size, std::int64_t of) { return size > 0 && size % of == 0 && size < (1 << 20); };
  check(whole(a.size(0), multiple) && whole(b.size(0), multiple) && whole(a.size(1), multiple_k), a.op,
        "expected m and n in multiples of ", multiple, ", k of ", multiple_k, ", all below 2^20, got ", to_string(a.sizes),
        " and ", to_string(b.sizes));
}

}  // namespace xgemm::lab
