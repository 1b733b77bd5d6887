// What the lab's ops share: argument checks, which run before CudaScope's check of the device, so that a message does not depend
// on the machine; their tensors' pointers; the steps and kernels that they launch.
#pragma once
#include <algorithm>
#include <array>
#include <string>

#include "device/launch.h"
#include "lab/kernels.h"
#include "torch/cuda.h"
#include "torch/tensor.h"

namespace xgemm::lab {

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

inline TensorView array(const char* op, const char* name, const Tensor& t,
                        std::initializer_list<ScalarType> dtypes = {ScalarType::Float}) {
  const TensorView v = view(op, name, t);
  check_dtype(v, dtypes);
  check_contiguous(v);
  return v;
}

inline void check_matrix(const TensorView& v, ScalarType dtype = ScalarType::Float) {
  check_dtype(v, {dtype});
  check(v.dim() == 2, v.op, "expected ", v.name, " to be a matrix, got shape ", to_string(v.sizes));
  check_contiguous(v);
}

/// Matrices a (m, k) and b (k, n), or b (n, k) where b is `transposed`.
inline void check_product(const TensorView& a, const TensorView& b, bool transposed, ScalarType dtype = ScalarType::Float) {
  check_matrix(a, dtype);
  check_matrix(b, dtype);
  check_same_device(a, b);
  check(a.size(1) == b.size(transposed ? 1 : 0), a.op, "expected a and b of shapes (m, k) and ", transposed ? "(n, k)" : "(k, n)",
        ", got ", to_string(a.sizes), " and ", to_string(b.sizes));
}

inline bool is_aligned(const TensorView& v, std::uintptr_t bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(v.data) % bytes == 0;
}

inline void check_aligned(const TensorView& v) {
  check(is_aligned(v), v.op, "expected ", v.name, " at an address that is a multiple of 16");
}

/// `what`: what needs it.
template <class... What>
void check_hopper(const char* op, const CudaScope& scope, const What&... what) {
  check(scope.properties().major == 9, op, "expected a GPU of compute capability 9.0", what..., ", got ",
        scope.properties().major, ".", scope.properties().minor);
}

/// The pointer of a tensor that an op allocated, and of an argument.
template <class T>
T* data(const Tensor& t) {
  return static_cast<T*>(t.data_ptr());
}
template <class T>
const T* data(const TensorView& v) {
  return static_cast<const T*>(v.data);
}

template <class Step>
const Step& step_of(const char* op, std::int64_t step, std::int64_t first, std::int64_t last, int size = 0) {
  check(step >= first && step <= last, op, "expected step in [", first, ", ", last, "], got ", step);
  const Step* const found = find_step<Step>({static_cast<int>(step), size});
  check(found, op, "expected step ", step, " to be compiled");
  return *found;
}

/// Launches the kernel of this name, whose parameters are of these very types.
template <class... Parameters>
void launch(const CudaScope& scope, const std::string& name, const Grid& grid, Parameters... arguments) {
  const NamedKernel& found = named_kernel("lab", name.c_str());
  check(found.type == &kTypeOf<void(Parameters...)>, "lab", "expected the parameters of kernel ", name);
  enqueue(reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(found.kernel)), grid, scope.stream(), arguments...);
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
  std::ranges::copy(numbers, data<std::int64_t>(out));
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
