// softmax, log_softmax: torch's semantics -> problem -> plan -> launch; the CPU path is ATen.
#include <algorithm>

#include "softmax/ops.h"
#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "device/environment.h"
#include "reduce/converted.h"
#include "softmax/launch.h"
#include "torch/cuda.h"
#endif

namespace xgemm {
namespace {

struct Call {
  TensorView input;
  std::int64_t dim;
  ScalarType output;
  bool log;
};

Call check_arguments(const char* op, bool log, const Tensor& input, std::int64_t dim, const std::optional<ScalarType>& dtype) {
  Call call{view(op, "input", input), 0, ScalarType::Float, log};
  const TensorView& v = call.input;
  check_dtype(v, kRealAndBool);
  call.output = floating_dtype(v, dtype);
  call.dim = wrap_dim(v, dim);
  return call;
}

#ifdef XGEMM_WITH_CUDA
Tensor run_cuda(const Call& call, const Tensor* out) {
  const TensorView& v = call.input;
  CudaScope scope(v);
  Tensor output = out ? *out : empty(v.sizes, call.output, v);
  if (v.numel() == 0) return output;

  const DType to = to_dtype(call.output);
  const reduce::Source given{v.data, to_dtype(v.dtype), v.sizes, v.strides};
  const bool converts = reduce::converts_on_load(given.dtype, to);
  const auto run = [&](const reduce::Source& source, std::int64_t dim, void* out, bool in_rows) {
    const softmax::Plan plan = softmax::make_plan(v.op, call.log, source, dim, to, scope.properties(), in_rows);
    std::optional<Tensor> pairs;
    if (plan.statistics) {
      pairs = workspace(plan.pairs_bytes, v);
      reduce::run(*plan.statistics, source.data, pairs->data_ptr(), scope);
    }
    softmax::launch(plan, source.data, out, pairs ? pairs->data_ptr() : nullptr, scope.stream());
    scope.check_launch();
  };
  if (!batch_invariant()) {
    const bool as_is = converts && softmax::reads_directly(given, call.dim);
    const reduce::Converted input(v, as_is, call.output, scope);
    run(input.source(), call.dim, output.data_ptr(), false);
    return output;
  }
  if (converts && softmax::has_dense_rows(v.op, given, call.dim)) {
    run(given, call.dim, output.data_ptr(), true);
    return output;
  }
  // Rows to a dense copy, and their results back.
  const std::uint64_t bit = v.sizes.empty() ? 0 : std::uint64_t{1} << call.dim;
  const reduce::Converted input(v, false, converts ? v.dtype : call.output, scope, bit);
  const Tensor rows = empty(input.source().sizes, call.output, v);
  run(input.source(), std::max<std::int64_t>(v.dim() - 1, 0), rows.data_ptr(), true);
  reduce::launch_cast(v.op, {rows.data_ptr(), to, v.sizes, input.strides_before()}, output.data_ptr(), to, scope.stream());
  scope.check_launch();
  return output;
}
#endif

Tensor run(const Call& call, const std::optional<ScalarType>& dtype, [[maybe_unused]] const Tensor* out = nullptr) {
#ifdef XGEMM_WITH_CUDA
  if (call.input.cuda) return run_cuda(call, out);
#endif
  check_room_for_copy(*call.input.tensor, call.output);
  return aten(call.log ? "log_softmax" : "softmax", "int", *call.input.tensor, call.dim, dtype);
}

Tensor softmax_op(const Tensor& input, std::int64_t dim, const std::optional<ScalarType>& dtype) {
  return run(check_arguments("softmax", false, input, dim, dtype), dtype);
}

Tensor log_softmax_op(const Tensor& input, std::int64_t dim, const std::optional<ScalarType>& dtype) {
  return run(check_arguments("log_softmax", true, input, dim, dtype), dtype);
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, softmax, softmax_op);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, log_softmax, log_softmax_op);

}  // namespace

Tensor softmax::softmax(const char* op, bool log, const Tensor& input, std::int64_t dim, const std::optional<ScalarType>& dtype,
                        const Tensor* out) {
  return run(check_arguments(op, log, input, dim, dtype), dtype, out);
}

}  // namespace xgemm
