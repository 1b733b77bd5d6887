// The library has no backward: an input that requires grad is an error, never a gradient lost in silence.
#pragma once
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace xgemm {

/// Throws if a gradient, reverse or forward mode, ought to flow through `t`. Only once torch_ext/autograd.py has said so: C++
/// programs without Python have the check in xgemm/xgemm.h.
void refuse_gradient(const char* op, const torch::stable::Tensor& t);
inline void refuse_gradient(const char* op, const std::optional<torch::stable::Tensor>& t) {
  if (t) refuse_gradient(op, *t);
}
template <class Other>
void refuse_gradient(const char*, const Other&) {}

/// A string as a template argument.
template <std::size_t size>
struct Name {
  char text[size];
  consteval Name(const char (&string)[size]) { std::copy_n(string, size, text); }
};

/// `function` behind that check of its tensors.
template <Name op, auto function>
struct ForwardOnly;
template <Name op, class Result, class... Parameters, Result (*function)(Parameters...)>
struct ForwardOnly<op, function> {
  static Result call(Parameters... arguments) {
    (refuse_gradient(op.text, arguments), ...);
    return function(std::forward<Parameters>(arguments)...);
  }
};

}  // namespace xgemm
