// topk_softmax: the k largest of a softmax -> plan -> launch; the CPU path is ATen.
#include <algorithm>
#include <tuple>

#include "topk_softmax/plan.h"
#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "reduce/converted.h"
#include "topk_softmax/launch.h"
#include "torch/cuda.h"
#endif

namespace xgemm {
namespace {

constexpr const char* kOp = "topk_softmax";
using Dtype = std::optional<ScalarType>;
using Result = std::tuple<Tensor, Tensor>;

struct Call {
  TensorView input;
  std::int64_t k, dim;
  bool renormalize;
  ScalarType output;
  Shape shape;  ///< of both results
};

Call check_arguments(const Tensor& input, std::int64_t k, std::int64_t dim, bool renormalize, const Dtype& dtype) {
  Call call{view(kOp, "input", input), k, 0, renormalize, ScalarType::Float, {}};
  const TensorView& v = call.input;
  check_dtype(v, {ScalarType::Float, ScalarType::Half, ScalarType::BFloat16, ScalarType::Double, ScalarType::Long,
                  ScalarType::Int, ScalarType::Short, ScalarType::Char, ScalarType::Byte, ScalarType::Bool});
  call.output = dtype.value_or(v.dtype);
  check(std::ranges::find(kFloating, call.output) != kFloating.end(), kOp, "expected ", dtype ? "dtype" : "input",
        " of a floating dtype, got ", to_string(call.output), dtype ? "" : "; pass dtype=, for example torch.float32");
  call.dim = wrap_dim(v, dim);
  call.shape.assign(v.sizes.begin(), v.sizes.end());
  const std::int64_t length = call.shape.empty() ? 1 : v.size(call.dim);
  check(length < std::int64_t{1} << 31, kOp, "expected rows of fewer than 2^31 elements, got ", length);
  const std::int64_t least = call.shape.empty() ? 1 : 0, most = std::min(length, topk_softmax::kMaxK);
  check(k >= least && k <= most, kOp, "expected k in [", least, ", ", most, "] for ", length, " elements in dim ", dim, ", got ",
        k);
  if (!call.shape.empty()) call.shape[static_cast<std::size_t>(call.dim)] = k;
  return call;
}

bool is_empty(const Call& call) { return std::ranges::find(call.shape, 0) != call.shape.end(); }

Result run_cpu(const Call& call) {
  const TensorView& v = call.input;
  const Tensor x = v.dtype == call.output ? *v.tensor : torch::stable::to(*v.tensor, call.output);
  // A stable sort: of equal elements the first; NaN comes first of all.
  const auto [sorted, order] = aten_results<2>("sort", "stable", x, std::optional(true), call.dim, true);
  const auto first = [&](const Tensor& t) {
    return call.shape.empty() ? t : aten("narrow", "", t, call.dim, std::int64_t{0}, call.k);
  };
  const Tensor indices = first(order);
  const Dtype same = std::nullopt;
  const Tensor values = call.renormalize
                            ? aten("softmax", "int", first(sorted), call.dim, same)
                            : aten("gather", "", aten("softmax", "int", x, call.dim, same), call.dim, indices, false);
  return {torch::stable::contiguous(values), torch::stable::contiguous(indices)};
}

#ifdef XGEMM_WITH_CUDA
Result run_cuda(const Call& call) {
  const TensorView& v = call.input;
  CudaScope scope(v);
  Result result{empty(call.shape, call.output, v), empty(call.shape, ScalarType::Long, v)};
  if (is_empty(call)) return result;

  // A dtype that changes values before they are compared is a pass of its own.
  const DType from = to_dtype(v.dtype), to = to_dtype(call.output);
  const reduce::Converted input(v, from == to || (is_half(from) && to == DType::f32), call.output, scope);
  const topk_softmax::Plan plan =
      topk_softmax::make_plan(kOp, input.source(), call.dim, static_cast<int>(call.k), call.renormalize, to);
  topk_softmax::launch(plan, input.source().data, std::get<0>(result).data_ptr(),
                       static_cast<std::int64_t*>(std::get<1>(result).data_ptr()), scope.stream());
  scope.check_launch();
  return result;
}
#endif

Result topk_softmax_op(const Tensor& input, std::int64_t k, std::int64_t dim, bool renormalize, const Dtype& dtype) {
  const Call call = check_arguments(input, k, dim, renormalize, dtype);
#ifdef XGEMM_WITH_CUDA
  if (call.input.cuda) return run_cuda(call);
#endif
  if (is_empty(call)) return {empty(call.shape, call.output, call.input), empty(call.shape, ScalarType::Long, call.input)};
  return run_cpu(call);
}

XGEMM_REGISTER(xgemm, topk_softmax, topk_softmax_op);

}  // namespace
}  // namespace xgemm
