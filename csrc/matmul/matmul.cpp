// matmul, addmm, linear, gated_linear, prepare: torch's semantics -> Problem. run.cpp (GPU) and cpu.cpp multiply.
#include <algorithm>
#include <utility>

#include "matmul/call.h"
#include "matmul/ops.h"
#include "torch/register.h"

namespace xgemm::matmul {
namespace {

Activation parse_activation(const char* op, const std::string& s) {
  if (s == "none") return Activation::none;
  if (s == "relu") return Activation::relu;
  if (s == "gelu") return Activation::gelu;
  if (s == "gelu_tanh") return Activation::gelu_tanh;
  if (s == "silu") return Activation::silu;
  fail(op, "expected activation to be none, relu, gelu, gelu_tanh or silu, got \"", s, "\"");
}

void check_like(const TensorView& first, const TensorView& other) {
  check_same_device(first, other);
  check_same_dtype(first, other);
}

/// Checks the first tensor's dtype, then all others' device and dtype against the first's.
template <class... Views>
void check_operands(const TensorView& first, const Views&... others) {
  check_dtype(first, kFloating);
  (check_like(first, others), ...);
}

std::optional<Tensor> on_gpu([[maybe_unused]] Call& call) {
#ifdef XGEMM_WITH_CUDA
  if (call.like.cuda) return run(call);
#endif
  return {};
}

std::int64_t bytes_prepared([[maybe_unused]] const TensorView& weight, [[maybe_unused]] Precision precision) {
#ifdef XGEMM_WITH_CUDA
  if (weight.cuda) return prepared_bytes(weight, precision);
#endif
  return 0;
}

Call call_like(const TensorView& x, Precision precision) {
  Call call{.like = x};
  call.problem.precision = precision;
  call.problem.dtype = to_dtype(x.dtype);
  return call;
}

Operand operand(const TensorView& x, std::int64_t row_stride, std::int64_t col_stride) {
  return {.data = x.data, .row_stride = row_stride, .col_stride = col_stride};
}

/// An operand that broadcasts to the whole output (addmm's input, linear's residual): last two dims, batch strides. `row`,
/// `column`: an operand is a vector, so the output lacks that dim; in the (batch, m, n) shape it has size 1.
Operand broadcast_operand(const TensorView& x, ShapeRef out_shape, Shape& strides, bool row = false, bool column = false) {
  check(broadcasts_to(x.sizes, out_shape), x.op, "expected ", x.name, " to broadcast to the output's shape ",
        to_string(out_shape), ", got ", to_string(x.sizes));
  strides = broadcast_strides(x.sizes, x.strides, out_shape);
  const auto take_last = [&]() -> std::int64_t {
    if (strides.empty()) return 0;
    const std::int64_t last = strides.back();
    strides.pop_back();
    return last;
  };
  const std::int64_t col_stride = column ? 0 : take_last();
  return operand(x, row ? 0 : take_last(), col_stride);
}

Shape batch_strides(const TensorView& x, std::size_t matrix_dims, ShapeRef batch) {
  const std::size_t dims = x.sizes.size() > matrix_dims ? x.sizes.size() - matrix_dims : 0;
  return broadcast_strides(x.sizes.first(dims), x.strides.first(dims), batch);
}

/// a times b as torch.matmul has it, up to its operands' batch dims.
Call begin_product(const TensorView& va, const TensorView& vb, Precision precision, const Tensor* out, bool unless_slower) {
  const char* const op = va.op;
  Call call = call_like(va, precision);
  Problem& p = call.problem;
  check(va.dim() > 0 && vb.dim() > 0, op, "expected ", va.name, " and ", vb.name, " with at least 1 dim, got shapes ",
        to_string(va.sizes), " and ", to_string(vb.sizes));
  const bool row = va.dim() == 1, column = vb.dim() == 1;  // vectors are a row and a column
  p.m = row ? 1 : va.size(-2);
  p.k = va.size(-1);
  p.n = column ? 1 : vb.size(-1);
  check(p.k == vb.size(column ? -1 : -2), op, "expected ", va.name, "'s last dim to equal ", vb.name, "'s ",
        column ? "only" : "second-to-last", " dim, got shapes ", to_string(va.sizes), " and ", to_string(vb.sizes));
  call.batch = broadcast(va, va.sizes.first(row ? 0 : va.sizes.size() - 2), vb, vb.sizes.first(column ? 0 : vb.sizes.size() - 2));
  call.out_shape = call.batch;
  if (!row) call.out_shape.push_back(p.m);
  if (!column) call.out_shape.push_back(p.n);
  p.a = operand(va, row ? 0 : va.stride(-2), va.stride(-1));
  p.b = operand(vb, column ? vb.stride(-1) : vb.stride(-2), column ? 0 : vb.stride(-1));
  call.a = batch_strides(va, 2, call.batch);
  call.b = batch_strides(vb, 2, call.batch);
  call.out = out, call.unless_slower = unless_slower;
  return call;
}

Tensor product(const TensorView& va, const TensorView& vb, Precision precision, const Tensor* out, bool unless_slower) {
  check_operands(va, vb);
  Call call = begin_product(va, vb, precision, out, unless_slower);
  if (auto result = on_gpu(call)) return *result;
  return matmul_cpu(call, va, vb);
}

Tensor product_sum(const TensorView& vi, const TensorView& va, const TensorView& vb, double beta, double alpha,
                   Activation activation, Precision precision, const Tensor* out, bool unless_slower) {
  check_operands(va, vb, vi);
  Call call = begin_product(va, vb, precision, out, unless_slower);
  Problem& p = call.problem;
  if (beta != 0)  // with beta 0 it is not read, so that its NaN and Inf do not show
    p.c = broadcast_operand(vi, call.out_shape, call.c, va.dim() == 1, vb.dim() == 1);
  check_range(va, "alpha", alpha);
  check_range(va, "beta", beta);
  p.alpha = alpha, p.beta = beta, p.activation = activation;
  const bool one_row = p.c.row_stride == 0 && std::all_of(call.c.begin(), call.c.end(), [](auto step) { return step == 0; });
  if (beta == 1 && one_row) p.bias = std::exchange(p.c, {});  // the same sum to the last bit, and cheaper
  if (auto result = on_gpu(call)) return *result;
  return addmm_cpu(call, vi, va, vb);
}

Tensor matmul_op(const Tensor& a, const Tensor& b, const Text& precision) {
  return product(view("matmul", "a", a), view("matmul", "b", b), parse_precision("matmul", precision), nullptr, false);
}

Tensor addmm_op(const Tensor& input, const Tensor& mat1, const Tensor& mat2, double beta, double alpha, const Text& precision) {
  const char* const op = "addmm";
  const TensorView va = view(op, "mat1", mat1), vb = view(op, "mat2", mat2);
  check(va.dim() == 2 && vb.dim() == 2, op, "expected mat1 and mat2 with 2 dims, got shapes ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  return product_sum(view(op, "input", input), va, vb, beta, alpha, Activation::none, parse_precision(op, precision), nullptr,
                     false);
}

/// The common start of the ops on an input (..., m, k) or (k): all but n and out_shape's last dim, which the caller appends.
Call begin_linear(const TensorView& x, const Text& activation, const Text& precision) {
  const Activation function = parse_activation(x.op, activation);
  Call call = call_like(x, parse_precision(x.op, precision));
  Problem& p = call.problem;
  p.activation = function;
  check(x.dim() > 0, x.op, "expected input with at least 1 dim, got shape []");
  const bool row = x.dim() == 1;
  p.m = row ? 1 : x.size(-2), p.k = x.size(-1);
  call.batch.assign(x.sizes.begin(), x.sizes.end() - (row ? 1 : 2));
  call.out_shape.assign(x.sizes.begin(), x.sizes.end() - 1);
  p.a = operand(x, row ? 0 : x.stride(-2), x.stride(-1));
  call.a = batch_strides(x, 2, call.batch);
  call.b.assign(call.batch.size(), 0);
  return call;
}

void check_depth(const TensorView& x, const TensorView& weight) {
  check(x.size(-1) == weight.size(-1), x.op, "expected input's last dim to equal ", weight.name, "'s last dim, got shapes ",
        to_string(x.sizes), " and ", to_string(weight.sizes));
}

/// The operand B = weight^T of a weight (n, k), or (k), which is one column.
Operand weight_operand(const TensorView& w) { return operand(w, w.stride(-1), w.dim() == 1 ? 0 : w.stride(0)); }

/// `prepared`: null, or prepare()'s result for the weight.
Tensor linear_with(const char* op, const Tensor& input, const Tensor& weight, const Tensor* prepared,
                   const std::optional<Tensor>& bias, const Text& activation, const std::optional<Tensor>& residual,
                   const Text& precision) {
  const TensorView vx = view(op, "input", input), vw = view(op, "weight", weight);
  check_operands(vx, vw);
  Call call = begin_linear(vx, activation, precision);
  Problem& p = call.problem;
  check(vw.dim() == 1 || vw.dim() == 2, op, "expected weight with 1 or 2 dims, got shape ", to_string(vw.sizes));
  const bool row = vx.dim() == 1, column = vw.dim() == 1;
  p.n = column ? 1 : vw.size(0);
  check_depth(vx, vw);
  if (!column) call.out_shape.push_back(p.n);
  if (prepared) {
    const TensorView v = view(op, "prepared", *prepared);
    check_same_device(vx, v);
    check(v.dtype == ScalarType::Byte && v.dim() == 1, op, "expected prepared to be what prepare(weight) gives, got ",
          to_string(v.dtype), " of shape ", to_string(v.sizes));
    const std::int64_t wanted = column ? 0 : bytes_prepared(vw, p.precision);
    if (wanted > 0 && v.size(0) > 0) {
      check(v.size(0) == wanted && v.stride(0) == 1, op, "expected prepared to be what prepare(weight, precision=", precision,
            ") gives, ", wanted, " bytes, got ", v.size(0));
      p.prepared_b = v.data;
    }
  }
  if (bias) {
    const TensorView v = view(op, "bias", *bias);
    check_like(vx, v);
    check(!column || v.dim() == 0, op, "expected a bias of no dims beside a weight of 1 dim, got shape ", to_string(v.sizes));
    check(v.dim() == 0 || (v.dim() == 1 && (v.size(0) == p.n || v.size(0) == 1)), op, "expected bias of shape [", p.n, "], got ",
          to_string(v.sizes));
    p.bias = operand(v, 0, v.dim() == 1 && v.size(0) != 1 ? v.stride(0) : 0);
  }
  if (residual) {
    const TensorView v = view(op, "residual", *residual);
    check_like(vx, v);
    p.residual = broadcast_operand(v, call.out_shape, call.residual, row, column);
  }
  p.b = weight_operand(vw);
  if (auto out = on_gpu(call)) return *out;
  return linear_cpu(call, vw, bias, residual);
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, const Text& activation,
              const std::optional<Tensor>& residual, const Text& precision) {
  return linear_with("linear", input, weight, nullptr, bias, activation, residual, precision);
}

Tensor linear_prepared(const Tensor& input, const Tensor& weight, const Tensor& prepared, const std::optional<Tensor>& bias,
                       const Text& activation, const std::optional<Tensor>& residual, const Text& precision) {
  return linear_with("linear_prepared", input, weight, &prepared, bias, activation, residual, precision);
}

Tensor prepare(const Tensor& weight, const Text& precision) {
  const char* const op = "prepare";
  const TensorView v = view(op, "weight", weight);
  check_dtype(v, kFloating);
  check(v.dim() == 2, op, "expected weight with 2 dims, got shape ", to_string(v.sizes));
  Call call = call_like(v, parse_precision(op, precision));
  Problem& p = call.problem;
  const std::int64_t bytes = bytes_prepared(v, p.precision);
  Tensor out = workspace(bytes, v);
  p.n = v.size(0), p.k = v.size(1), p.b = weight_operand(v);
#ifdef XGEMM_WITH_CUDA
  if (bytes > 0) run_prepare(p, out, v);
#endif
  return out;
}

Tensor gated_linear(const Tensor& input, const Tensor& weight_gate, const Tensor& weight_up,
                    const std::optional<Tensor>& bias_gate, const std::optional<Tensor>& bias_up, const Text& activation,
                    const Text& precision) {
  const char* const op = "gated_linear";
  const TensorView vx = view(op, "input", input), vg = view(op, "weight_gate", weight_gate),
                   vu = view(op, "weight_up", weight_up);
  check_operands(vx, vg, vu);
  Call call = begin_linear(vx, activation, precision);
  Problem& p = call.problem;
  check(vg.dim() == 2, op, "expected weight_gate with 2 dims, got shape ", to_string(vg.sizes));
  check(vu.dim() == 2 && vu.size(0) == vg.size(0) && vu.size(1) == vg.size(1), op, "expected weight_up of weight_gate's shape ",
        to_string(vg.sizes), ", got ", to_string(vu.sizes));
  p.n = vg.size(0);
  check_depth(vx, vg);
  call.out_shape.push_back(p.n);
  const auto bias = [&](const std::optional<Tensor>& tensor, const char* name) -> Operand {
    if (!tensor) return {};
    const TensorView v = view(op, name, *tensor);
    check_like(vx, v);
    check(v.dim() == 1 && v.size(0) == p.n, op, "expected ", name, " of shape [", p.n, "], got ", to_string(v.sizes));
    return operand(v, 0, v.stride(0));
  };
  p.bias = bias(bias_gate, "bias_gate"), p.bias_up = bias(bias_up, "bias_up");
  p.gated = true;
  p.b = weight_operand(vg), p.up = weight_operand(vu);
  if (auto out = on_gpu(call)) return *out;
  return gated_linear_cpu(call, vg, vu, bias_gate, bias_up);
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, matmul, matmul_op);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, addmm, addmm_op);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, linear, linear);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, gated_linear, gated_linear);
XGEMM_REGISTER(xgemm, prepare, prepare);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, linear_prepared, linear_prepared);

}  // namespace

Tensor matmul(const char* op, const Tensor& a, const Tensor& b, Precision precision, const Tensor* out, bool unless_slower) {
  return product(view(op, "mat1", a), view(op, "mat2", b), precision, out, unless_slower);
}

Tensor addmm(const char* op, const Tensor& input, const Tensor& mat1, const Tensor& mat2, double beta, double alpha,
             Activation activation, Precision precision, const Tensor* out, bool unless_slower) {
  return product_sum(view(op, "input", input), view(op, "mat1", mat1), view(op, "mat2", mat2), beta, alpha, activation, precision,
                     out, unless_slower);
}

}  // namespace xgemm::matmul
