// What aten's operators share here: is a call ours, and the answer to it, by our kernel or by torch's.
#pragma once
#include <algorithm>
#include <initializer_list>

#include "enable/previous.h"
#include "enable/served.h"
#include "reduce/plan.h"
#include "torch/aten.h"
#ifdef XGEMM_WITH_CUDA
#include "device/environment.h"
#include "device/properties.h"
#endif

namespace xgemm::enable {

inline bool in_order() {
#ifdef XGEMM_WITH_CUDA
  return batch_invariant();
#else
  return false;
#endif
}

/// Has `t` a dtype that can be ours? Others go to torch unread: the stable ABI does not name all of them.
inline bool can_be_ours(const Tensor& t) {
  std::int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(t.get(), &dtype));
  return dtype == aoti_torch_dtype_float32() || dtype == aoti_torch_dtype_bfloat16() || dtype == aoti_torch_dtype_float16() ||
         dtype == aoti_torch_dtype_float64();
}

/// Is a call of `dtype` ours as far as the settings go?
inline By by_settings(Op op, ScalarType dtype) {
  if (!is_floating(dtype)) return By::dtype;
  return is_on(op, to_dtype(dtype)) ? By::xgemm : By::off;
}

struct Range {
  std::uintptr_t begin, end;
};
/// The bytes from a tensor's first to its last element.
inline Range memory_of(const TensorView& v) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] == 0) return {};
    last += (v.sizes[d] - 1) * v.strides[d];
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(v.data);
  return {begin, begin + (static_cast<std::uintptr_t>(last) + 1) * size_of(to_dtype(v.dtype))};
}

/// Can a write to one of them change the other?
inline bool overlap(const TensorView& a, const TensorView& b) {
  const Range x = memory_of(a), y = memory_of(b);
  return x.begin < y.end && y.begin < x.end;
}

/// Can a kernel write its result to `out` while it reads `inputs`?
inline bool takes_result(const TensorView& out, std::initializer_list<const TensorView*> inputs) {
  return reduce::is_dense({out.data, to_dtype(out.dtype), out.sizes, out.strides}) && memory_of(out).begin % 16 == 0 &&
         std::none_of(inputs.begin(), inputs.end(), [&](const TensorView* x) { return overlap(out, *x); });
}

/// `out` is what an `.out` overload was given, else null. serve(destination) computes the result, on a GPU into a destination
/// that is not null, or gives an undefined tensor where torch is faster; torch() is torch's kernel.
template <class Serve, class Torch>
Tensor answer(Op op, By by, const TensorView* out, std::initializer_list<const TensorView*> inputs, const Serve& serve,
              const Torch& torch) {
  if (by == By::xgemm) {
    try {
      const Serving guard;
      const bool direct = out && out->cuda && takes_result(*out, inputs);
      const Tensor result = serve(direct ? out->tensor : nullptr);
      if (result.defined()) {
        count(op, by);
        if (!out) return result;
        Tensor destination = *out->tensor;
        if (!direct) torch::stable::copy_(destination, result);
        return destination;
      }
      by = By::faster;
    } catch (const std::exception& error) {
      // Torch's own calls fail for lack of memory: its kernel may need less, and raises torch's error.
      if (std::string_view(error.what()).starts_with("xgemm")) throw;
      by = By::memory;
    }
  }
  count(op, by);
  return torch();
}

inline bool same_type(const TensorView& a, const TensorView& b) { return a.dtype == b.dtype && a.device_index == b.device_index; }

/// SDPA, registered at autograd's key too. Grouped heads in float32 are repeated: no fused backend of torch takes them.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& mask, double dropout,
                 bool causal, std::optional<double> scale, bool gqa);
/// SDPA's memory-efficient backend on this library's attention: where float32, and masks, go. Torch's backward reads the
/// results: the output lies as (B, S, H, Dv), the log-sum-exp is padded with inf to 32 queries.
FourTensors efficient_attention(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& bias,
                                bool want_lse, double dropout, bool causal, std::optional<double> scale);
using Gradients = std::tuple<Tensor, Tensor, Tensor>;
/// Its backward in float32 without dropout and the gradient of the bias; undefined tensors if torch has to serve.
Gradients efficient_attention_backward(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v,
                                       const std::optional<Tensor>& bias, const Tensor& out, const Tensor& lse, bool causal,
                                       std::optional<double> scale);

}  // namespace xgemm::enable
