// Torch's own kernels of the operators that this library can serve: what a call goes to that is not ours.
//
// A kernel that is registered over another one cannot reach it through the stable interface. Torch exports its kernels as C++
// functions, whose mangled names hold the types of their parameters: one that has changed is not found, and its operator stays
// torch's. Parameters follow torch's C++ ABI: a Tensor& is an AtenTensorHandle, an ArrayRef is laid out as a span.
#pragma once
#include <span>
#include <tuple>

#include "torch/tensor.h"

namespace xgemm::enable {

/// So many at::Tensor as a function returns them: pointers, in memory that the caller gives, since the destructor is not trivial.
/// libstdc++ stores the last element of a std::tuple first.
template <int kCount>
struct Returned {
  void* impls[kCount];
  Returned(const Returned&) = delete;
  ~Returned() {}  // NOLINT: not trivial on purpose; each pointer is owned by the handle around it
};

using Handle = AtenTensorHandle;
using DimsRef = std::span<const std::int64_t>;
using OptionalDims = std::optional<DimsRef>;
using OptionalDtype = std::optional<ScalarType>;

/// The tensor whose pointer a function has returned. Torch deletes the memory, as an at::Tensor.
inline Tensor owned(void* impl) { return Tensor(reinterpret_cast<Handle>(new void*(impl))); }

/// A kernel and its `.out` overload, which returns a reference to `out`.
template <class... Parameters>
struct Kernel {
  Returned<1> (*fresh)(Parameters...) = nullptr;
  void* (*into)(Handle out, Parameters...) = nullptr;

  Tensor operator()(const Tensor* out, Parameters... parameters) const {
    if (out) return into(out->get(), parameters...), *out;
    return owned(fresh(parameters...).impls[0]);
  }
};

/// std::optional<at::Tensor>, borrowed.
struct OptionalTensor {
  void* impl;
  bool has_value;
  explicit OptionalTensor(const std::optional<Tensor>& t)
      : impl(t ? *reinterpret_cast<void**>(t->get()) : nullptr), has_value(t.has_value()) {}
};

using FourTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

/// aten::_scaled_dot_product_efficient_attention.
struct EfficientAttention {
  Returned<4> (*kernel)(Handle q, Handle k, Handle v, const OptionalTensor& bias, bool want_lse, double dropout, bool causal,
                        std::optional<double> scale) = nullptr;

  FourTensors operator()(const Tensor& q, const Tensor& k, const Tensor& v, const std::optional<Tensor>& bias, bool want_lse,
                         double dropout, bool causal, std::optional<double> scale) const {
    const Returned<4> r(kernel(q.get(), k.get(), v.get(), OptionalTensor(bias), want_lse, dropout, causal, scale));
    return {owned(r.impls[3]), owned(r.impls[2]), owned(r.impls[1]), owned(r.impls[0])};
  }
};

/// addmm or baddbmm, from torch's C interface: its C++ functions take a Scalar.
using SumInto = AOTITorchError (*)(Handle out, Handle self, Handle a, Handle b, double beta, double alpha);

/// The kernels of one device type.
struct Previous {
  Kernel<Handle, Handle> mm, bmm;
  SumInto addmm = nullptr, baddbmm = nullptr;  ///< CUDA's
  Kernel<Handle, std::int64_t, bool> softmax, log_softmax;
  Kernel<Handle, OptionalDims, bool, OptionalDtype> sum, mean;
  Kernel<Handle, DimsRef, bool> amax, amin, logsumexp;
  Kernel<Handle, std::optional<std::int64_t>, bool> argmax, argmin;
  Kernel<Handle, Handle, Handle, const OptionalTensor&, double, bool, std::optional<double>, bool> attention;
  EfficientAttention efficient_attention;
};

/// Looked up once. Null where this torch has none of that name and those types.
const Previous& previous(bool cuda);

/// May fp32 products round to TF32 here? torch.backends.cuda.matmul.allow_tf32, torch.set_float32_matmul_precision().
bool tf32_allowed();

}  // namespace xgemm::enable
