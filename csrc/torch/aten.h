// ATen on the CPU: any op by name, through the dispatcher, and the few that have a C function of their own.
#pragma once
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <algorithm>
#include <array>
#include <string>

#include "torch/tensor.h"

namespace xgemm {

/// Calls an operator by name with its full argument list (defaults included, in schema order) and returns its first result.
/// The caller validates the arguments: the stable ABI drops the message of a failing call, and the error has only the name.
template <class Result = Tensor, class... Args>
Result call_operator(const std::string& name, const char* overload, const Args&... args) {
  std::array<StableIValue, std::max(sizeof...(Args), std::size_t{4})> stack{torch::stable::detail::from(args)...};
  if (torch_call_dispatcher(name.c_str(), overload, stack.data(), TORCH_ABI_VERSION) != TORCH_SUCCESS)
    throw std::runtime_error(name);
  return torch::stable::detail::to<Result>(stack[0]);
}
template <class Result = Tensor, class... Args>
Result aten(const char* name, const char* overload, const Args&... args) {
  return call_operator<Result>(std::string("aten::") + name, overload, args...);
}

/// A 0-d CPU tensor: how a Scalar argument is spelled here (the stable ABI of 2.10 has no Scalar).
inline Tensor scalar(double value, ScalarType dtype) { return torch::stable::full({}, value, dtype); }

/// `x` in `dtype`; `x` itself if it has that dtype already.
inline Tensor converted(const Tensor& x, ScalarType dtype) {
  if (x.scalar_type() == dtype) return x;
  check_room_for_copy(x, dtype);
  return torch::stable::to(x, dtype);
}

/// The same memory with other sizes and strides, `offset` elements further on.
Tensor strided(const Tensor& t, ShapeRef sizes, ShapeRef strides, std::int64_t offset = 0);
/// The strides of empty(shape).
Shape contiguous_strides(ShapeRef shape);
/// `t` with the strides that empty() gives its sizes: what torch calls contiguous may have others along dims of size 1.
Tensor dense(const Tensor& t);

/// True if oneDNN multiplies fp16 or bf16 natively on this CPU; otherwise ATen's products of that dtype are slower than fp32's.
bool multiplies(ScalarType half);

/// The precision to which ATen's products on this CPU may round fp32 operands, given torch's float32 matmul precision
/// ("highest", "high", "medium"). That setting is process-wide; a caller's `precision` argument takes priority over it.
enum class Rounding { none, tf32, bf16 };
Rounding product_rounding();

}  // namespace xgemm
