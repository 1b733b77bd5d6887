// Any ATen op by name, through the dispatcher: the CPU paths are made of these.
#pragma once
#include <array>
#include <string>

#include "torch/tensor.h"

namespace xgemm {

/// Calls aten::<name>.<overload> with its full argument list (defaults included, in schema order) and returns its first result.
/// Arguments are validated by the caller: the stable ABI keeps no message of a failing call.
template <class Result = Tensor, class... Args>
Result aten(const char* name, const char* overload, const Args&... args) {
  std::array<StableIValue, sizeof...(Args) < 4 ? 4 : sizeof...(Args)> stack{torch::stable::detail::from(args)...};
  if (torch_call_dispatcher((std::string("aten::") + name).c_str(), overload, stack.data(), TORCH_ABI_VERSION) != TORCH_SUCCESS)
    throw std::runtime_error(std::string("xgemm: ATen's ") + name + " failed on these arguments");
  return torch::stable::detail::to<Result>(stack[0]);
}

/// A 0-d CPU tensor: how a Scalar argument is spelled here (the stable ABI of 2.10 has no Scalar).
inline Tensor scalar(double value, ScalarType dtype) { return torch::stable::full({}, value, dtype); }

}  // namespace xgemm
