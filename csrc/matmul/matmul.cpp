// matmul, addmm and linear: argument checks (the same on every device), the CPU path through ATen, and on CUDA
// semantics -> problem -> plan -> launch.
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <algorithm>
#include <array>
#include <utility>

#include "matmul/problem.h"
#include "torch/aten.h"
#include "torch/register.h"

namespace xgemm {
namespace {

template <class Choice, std::size_t kCount>
using Choices = std::array<std::pair<const char*, Choice>, kCount>;

constexpr Choices<Precision, 4> kPrecisions = {
    {{"highest", Precision::highest}, {"ieee", Precision::ieee}, {"high", Precision::high}, {"medium", Precision::medium}}};
constexpr Choices<Activation, 5> kActivations = {{{"none", Activation::none},
                                                  {"relu", Activation::relu},
                                                  {"gelu", Activation::gelu},
                                                  {"gelu_tanh", Activation::gelu_tanh},
                                                  {"silu", Activation::silu}}};

template <class Choice, std::size_t kCount>
Choice choose(const char* op, const char* name, const std::string& value, const Choices<Choice, kCount>& choices) {
  for (const auto& [text, choice] : choices)
    if (value == text) return choice;
  std::string known;
  for (const auto& [text, choice] : choices) known += (known.empty() ? "" : ", ") + std::string(text);
  fail(op, "expected ", name, " to be one of ", known, ", got ", value);
}

/// A checked product. `loops` are the broadcast batch dims; a 1-D factor has rows (or columns) of extent 1 that `out` does not
/// show.
struct Call {
  TensorView a, b;
  Precision precision;
  Shape loops;
  std::int64_t m, n, k;
  Shape out;
  bool a_is_vector, b_is_vector;
};

/// torch.matmul's shape rules; `b_transposed` reads b as (..., N, K), the way linear stores its weight.
Call check_product(const TensorView& a, const TensorView& b, bool b_transposed, const std::string& precision) {
  check_dtype(a, kFloating);
  check_same_device(a, b);
  check_same_dtype(a, b);
  Call call{.a = a,
            .b = b,
            .precision = choose(a.op, "precision", precision, kPrecisions),
            .loops = {},
            .m = 1,
            .n = 1,
            .k = 0,
            .out = {},
            .a_is_vector = a.dim() == 1,
            .b_is_vector = b.dim() == 1};
  if (a.dim() == 0 || b.dim() == 0)
    fail(a.op, "expected ", a.name, " and ", b.name, " of at least one dim, got shapes ", to_string(a.sizes), " and ",
         to_string(b.sizes));
  call.k = a.size(-1);
  if (!call.a_is_vector) call.m = a.size(-2);
  if (!call.b_is_vector) call.n = b.size(b_transposed ? -2 : -1);
  if (b.size(call.b_is_vector || b_transposed ? -1 : -2) != call.k)
    fail(a.op, "expected ", a.name, " and ", b.name, " with equal inner dims, got shapes ", to_string(a.sizes), " and ",
         to_string(b.sizes));
  const auto batch_of = [](const TensorView& v) {
    return v.sizes.first(v.sizes.size() - std::min<std::size_t>(v.sizes.size(), 2));
  };
  call.loops = broadcast(a, batch_of(a), b, batch_of(b));
  call.out = call.loops;
  if (!call.a_is_vector) call.out.push_back(call.m);
  if (!call.b_is_vector) call.out.push_back(call.n);
  return call;
}

/// `v` broadcasts to the product's shape.
void check_expands(const TensorView& v, const Call& call) {
  check_same_device(call.a, v);
  check_same_dtype(call.a, v);
  bool fits = v.sizes.size() <= call.out.size();
  for (std::size_t i = 1; fits && i <= v.sizes.size(); ++i) {
    const std::int64_t have = v.sizes[v.sizes.size() - i];
    fits = have == 1 || have == call.out[call.out.size() - i];
  }
  if (!fits) fail(v.op, "expected ", v.name, " to broadcast to ", to_string(call.out), ", got shape ", to_string(v.sizes));
}

// Ops with a Scalar argument go through torch's C shim: the dispatcher of the stable ABI takes none.
Tensor cpu_add(const Tensor& x, const Tensor& y) {
  AtenTensorHandle sum = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_add_Tensor(x.get(), y.get(), 1.0, &sum));
  return Tensor(sum);
}

Tensor cpu_addmm(const Call& call, const Tensor& input, const Tensor& mat1, const Tensor& mat2, double beta, double alpha) {
  Tensor out = empty(call.out, call.a.dtype, call.a);
  TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(out.get(), input.get(), mat1.get(), mat2.get(), beta, alpha));
  return out;
}

Tensor matmul(const Tensor& a, const Tensor& b, const std::string& precision) {
  const Call call = check_product(view("matmul", "a", a), view("matmul", "b", b), false, precision);
  if (!call.a.cuda) return aten("matmul", "", a, b);
  fail("matmul", "no CUDA path");
}

Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, double beta, double alpha,
             const std::string& precision) {
  const TensorView c = view("addmm", "input", input), a = view("addmm", "mat1", mat1), b = view("addmm", "mat2", mat2);
  if (a.dim() != 2 || b.dim() != 2)
    fail("addmm", "expected mat1 and mat2 of two dims, got shapes ", to_string(a.sizes), " and ", to_string(b.sizes));
  const Call call = check_product(a, b, false, precision);
  check_expands(c, call);
  if (!a.cuda) return cpu_addmm(call, input, mat1, mat2, beta, alpha);
  fail("matmul", "no CUDA path");
}

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::relu: return aten("relu", "", x);
    case Activation::gelu: return aten("gelu", "", x, std::string("none"));
    case Activation::gelu_tanh: return aten("gelu", "", x, std::string("tanh"));
    case Activation::silu: return aten("silu", "", x);
    default: return x;
  }
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, const std::string& activation,
              const std::optional<Tensor>& residual, const std::string& precision) {
  const TensorView x = view("linear", "input", input), w = view("linear", "weight", weight);
  const Activation act = choose("linear", "activation", activation, kActivations);
  if (w.dim() != 1 && w.dim() != 2) fail("linear", "expected weight of shape [N, K] or [K], got shape ", to_string(w.sizes));
  const Call call = check_product(x, w, true, precision);
  std::optional<TensorView> c, r;
  if (bias) {
    c = view("linear", "bias", *bias);
    check_same_device(x, *c);
    check_same_dtype(x, *c);
    if (c->dim() > 1 || (c->dim() == 1 && (call.b_is_vector || c->size(0) != call.n)))
      fail("linear", "expected bias of shape ", call.b_is_vector ? "" : to_string(ShapeRef(&call.n, 1)) + " or ",
           "[], got shape ", to_string(c->sizes));
  }
  if (residual) {
    r = view("linear", "residual", *residual);
    check_expands(*r, call);
  }
  if (!x.cuda) {
    Tensor y = call.b_is_vector ? aten("matmul", "", input, weight)
                                : aten("linear", "", input, weight, c && c->dim() == 1 ? bias : std::optional<Tensor>());
    if (c && c->dim() == 0) y = cpu_add(y, *bias);
    y = activate(y, act);
    return r ? cpu_add(y, *residual) : y;
  }
  fail("matmul", "no CUDA path");
}

XGEMM_REGISTER(xgemm, matmul, matmul);
XGEMM_REGISTER(xgemm, addmm, addmm);
XGEMM_REGISTER(xgemm, linear, linear);

}  // namespace
}  // namespace xgemm
