// Products on the CPU: ATen. Half types are computed in fp32 and rounded once at the end, as the kernels do, but where the CPU
// multiplies them itself: there product, activation and residual are rounded one by one, as torch's are, four times as fast.
#include "matmul/call.h"
#include "torch/aten.h"

namespace xgemm::matmul {
namespace {

/// The type in which operands are multiplied: their own if `as_is`, else fp32, or fp64 if ATen would round fp32 to fewer bits
/// than the call's precision allows.
ScalarType arithmetic(const Call& call, bool as_is) {
  const Precision precision = call.problem.precision;
  if (as_is || call.like.dtype == ScalarType::Double) return call.like.dtype;
  const Rounding allowed = precision == Precision::medium ? Rounding::bf16
                           : precision == Precision::high ? Rounding::tf32
                                                          : Rounding::none;
  return allowed < Rounding::bf16 && product_rounding() > allowed ? ScalarType::Double : ScalarType::Float;
}

std::int64_t all_rows(const Call& call) {
  std::int64_t rows = call.problem.m;
  for (const std::int64_t size : call.batch) rows *= size;
  return rows;
}

/// Is ATen's product of half operands at least as fast as one of copies in fp32? It rounds once in both cases. Without
/// hardware for the type this holds for small products, and for a row times dense columns (`k_step` 1), by dot products.
bool multiplies_as_is(const Call& call, std::int64_t k_step) {
  const ScalarType half = call.like.dtype;
  if (half != ScalarType::Half && half != ScalarType::BFloat16) return false;
  constexpr std::int64_t kSmall = 8192;
  const std::int64_t rows = all_rows(call);
  return multiplies(half) || rows * call.problem.n * call.problem.k <= kSmall || (rows == 1 && k_step == 1);
}

Tensor add(const Tensor& x, const Tensor& y) {
  AtenTensorHandle sum = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_add_Tensor(x.get(), y.get(), 1, &sum));
  return Tensor(sum);
}

Tensor multiplied(const Tensor& x, const Tensor& y) {
  AtenTensorHandle product = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mul_Tensor(x.get(), y.get(), &product));
  return Tensor(product);
}

/// alpha * a @ b + beta * c in `type`, of the call's output shape. a: (rows, k), b: (k, n); c broadcasts to (rows, n), or null.
Tensor multiply(const Call& call, ScalarType type, const Tensor& a, const Tensor& b, const Tensor* c = nullptr, double beta = 1,
                double alpha = 1) {
  const std::int64_t n = call.problem.n;
  const bool is_matrix = call.batch.empty() && call.out_shape.size() == 2;
  const Tensor out = empty(call.out_shape, type, call.like), x = converted(a, type), y = converted(b, type),
               matrix = is_matrix ? out : strided(out, std::array{all_rows(call), n}, std::array{n, std::int64_t{1}});
  if (!c && alpha == 1) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(matrix.get(), x.get(), y.get()));
  } else {  // with beta 0 the third operand is not read
    const Tensor third = c ? converted(*c, type) : matrix;
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(matrix.get(), third.get(), x.get(), y.get(), c ? beta : 0, alpha));
  }
  return out;
}

/// linear's input as a matrix of all its rows; a copy only if their dims do not merge.
Tensor matrix_of(const TensorView& x) {
  if (x.dim() == 2) return *x.tensor;
  std::int64_t rows = 1;
  bool merges = x.dim() > 2;
  for (std::int64_t d = 0; d + 1 < x.dim(); ++d) {
    rows *= x.size(d);
    merges = merges && (d + 2 == x.dim() || x.stride(d) == x.size(d + 1) * x.stride(d + 1));
  }
  if (merges) return strided(*x.tensor, std::array{rows, x.size(-1)}, std::array{x.stride(-2), x.stride(-1)});
  return torch::stable::reshape(*x.tensor, std::array{rows, x.size(-1)});
}

/// A weight (n, k) or (k) as the matrix (k, n).
Tensor transposed(const TensorView& w) {
  return strided(*w.tensor, std::array{w.size(-1), w.dim() == 1 ? 1 : w.size(0)},
                 std::array{w.stride(-1), w.dim() == 1 ? 1 : w.stride(0)});
}

/// In place: no other code holds the product `x`.
Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::relu: return aten("relu_", "", x);
    case Activation::gelu: return aten("gelu_", "", x, std::string("none"));
    case Activation::gelu_tanh: return aten("gelu_", "", x, std::string("tanh"));
    case Activation::silu: return aten("silu_", "", x);
    default: return x;
  }
}

}  // namespace

Tensor matmul_cpu(const Call& call, const TensorView& a, const TensorView& b) {
  const ScalarType type = arithmetic(call, multiplies_as_is(call, b.stride(b.dim() == 1 ? -1 : -2)));
  if (a.dim() == 2 && b.dim() == 2) return converted(multiply(call, type, *a.tensor, *b.tensor), a.dtype);
  return converted(aten("matmul", "", converted(*a.tensor, type), converted(*b.tensor, type)), a.dtype);
}

Tensor addmm_cpu(const Call& call, const TensorView& input, const TensorView& a, const TensorView& b) {
  const Problem& p = call.problem;
  const ScalarType type = arithmetic(call, multiplies(a.dtype));  // rounded once there, too
  const Tensor sum = multiply(call, type, *a.tensor, *b.tensor, p.beta == 0 ? nullptr : input.tensor, p.beta, p.alpha);
  return converted(activate(sum, p.activation), a.dtype);
}

Tensor linear_cpu(const Call& call, const TensorView& weight, const std::optional<Tensor>& bias,
                  const std::optional<Tensor>& residual) {
  const Problem& p = call.problem;
  const TensorView& x = call.like;
  // ReLU of a rounded number is the rounded ReLU.
  const bool rounds_last = !residual && (p.activation == Activation::none || p.activation == Activation::relu);
  const bool as_is = rounds_last ? multiplies_as_is(call, weight.stride(-1)) : multiplies(x.dtype);
  const ScalarType type = arithmetic(call, as_is);
  Tensor y = activate(multiply(call, type, matrix_of(x), transposed(weight), bias ? &*bias : nullptr), p.activation);
  if (residual) y = dense(add(y, converted(*residual, type)));
  return converted(y, x.dtype);
}

Tensor gated_linear_cpu(const Call& call, const TensorView& gate, const TensorView& up, const std::optional<Tensor>& bias_gate,
                        const std::optional<Tensor>& bias_up) {
  const TensorView& input = call.like;
  const ScalarType type = arithmetic(call, multiplies(input.dtype));
  const Tensor x = converted(matrix_of(input), type);
  const auto product = [&](const TensorView& weight, const std::optional<Tensor>& bias) {
    return multiply(call, type, x, transposed(weight), bias ? &*bias : nullptr);
  };
  const Tensor gated = activate(product(gate, bias_gate), call.problem.activation);
  return converted(multiplied(gated, product(up, bias_up)), input.dtype);
}

}  // namespace xgemm::matmul
