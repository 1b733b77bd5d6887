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

#ifdef XGEMM_WITH_CUDA
Tensor run_cuda(const TensorView& v, bool log, std::int64_t softmax_dim, ScalarType dtype, const Tensor* out) {
  CudaScope scope(v);
  Tensor output = out ? *out : empty(v.sizes, dtype, v);
  if (v.numel() == 0) return output;

  const DType to = to_dtype(dtype);
  const reduce::Source given{v.data, to_dtype(v.dtype), v.sizes, v.strides};
  const bool converts = reduce::converts_on_load(given.dtype, to);
  const auto run = [&](const reduce::Source& source, std::int64_t dim, void* out, bool in_rows) {
    const softmax::Plan plan = softmax::make_plan(v.op, log, source, dim, to, scope.properties(), in_rows);
    std::optional<Tensor> pairs;
    if (plan.statistics) {
      const auto pair = static_cast<std::int64_t>(reduce::state_bytes(reduce::State::logsumexp, plan.in));
      pairs = workspace(pair * plan.outer * plan.columns, v);
      reduce::run(*plan.statistics, source.data, pairs->data_ptr(), scope);
    }
    softmax::launch(plan, source.data, out, pairs ? pairs->data_ptr() : nullptr, scope.stream());
    scope.check_launch();
  };
  if (!batch_invariant()) {
    const bool as_is = converts && softmax::reads_directly(given, softmax_dim);
    const reduce::Converted input(v, as_is, dtype, scope);
    run(input.source(), softmax_dim, output.data_ptr(), false);
    return output;
  }
  if (converts && softmax::has_dense_rows(v.op, given, softmax_dim)) {
    run(given, softmax_dim, output.data_ptr(), true);
    return output;
  }
  // Rows to a dense copy, and their results back.
  const std::uint64_t bit = v.sizes.empty() ? 0 : std::uint64_t{1} << softmax_dim;
  const reduce::Converted input(v, false, converts ? v.dtype : dtype, scope, bit);
  const Tensor rows = empty(input.source().sizes, dtype, v);
  run(input.source(), std::max<std::int64_t>(v.dim() - 1, 0), rows.data_ptr(), true);
  reduce::launch_cast(v.op, {rows.data_ptr(), to, v.sizes, input.strides_before()}, output.data_ptr(), to, scope.stream());
  scope.check_launch();
  return output;
}
#endif

template <bool kLog>
Tensor softmax_op(const Tensor& input, std::int64_t dim, const std::optional<ScalarType>& dtype) {
  return softmax::softmax(kLog ? "log_softmax" : "softmax", kLog, input, dim, dtype);
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, softmax, softmax_op<false>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, log_softmax, softmax_op<true>);

}  // namespace

Tensor softmax::softmax(const char* op, bool log, const Tensor& input, std::int64_t dim, const std::optional<ScalarType>& dtype,
                        [[maybe_unused]] const Tensor* out) {
  const TensorView v = view(op, "input", input);
  check_dtype(v, kRealAndBool);
  const ScalarType output = floating_dtype(v, dtype);
  const std::int64_t wrapped = wrap_dim(v, dim);
#ifdef XGEMM_WITH_CUDA
  if (v.cuda) return run_cuda(v, log, wrapped, output, out);
#endif
  check_room_for_copy(input, output);
  return aten(log ? "log_softmax" : "softmax", "int", input, wrapped, dtype);
}

}  // namespace xgemm
