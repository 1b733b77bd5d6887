// topk_softmax: the k largest of a softmax -> plan -> launch; the CPU path is ATen.
#include <algorithm>
#include <cmath>
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
  check_dtype(v, kRealAndBool);
  call.output = floating_dtype(v, dtype);
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

/// The k largest of each row of n elements in descending order, and their indices. NaN is the largest; of equals the first one.
template <class T>
void choose_rows(const Tensor& input, std::int64_t rows, std::int64_t n, std::int64_t k, Tensor& chosen, Tensor& places) {
  constexpr std::int64_t kGrain = 1 << 15;  // elements per thread
  const auto above = [](T a, T b) { return std::isnan(a) ? !std::isnan(b) : a > b; };
  torch::stable::parallel_for(0, rows, std::max<std::int64_t>(1, kGrain / n), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* const in = static_cast<const T*>(input.data_ptr()) + row * n;
      T* const values = static_cast<T*>(chosen.data_ptr()) + row * k;
      std::int64_t *const indices = static_cast<std::int64_t*>(places.data_ptr()) + row * k, count = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        const T x = in[i];
        if (count == k && (x <= values[k - 1] || !above(x, values[k - 1]))) continue;
        std::int64_t at = count < k ? count++ : k - 1;
        for (; at > 0 && above(x, values[at - 1]); --at) values[at] = values[at - 1], indices[at] = indices[at - 1];
        values[at] = x, indices[at] = i;
      }
    }
  });
}

Result run_cpu(const Call& call) {
  const TensorView& v = call.input;
  const bool one = call.shape.empty();
  const std::int64_t n = one ? 1 : v.size(call.dim), rows = v.numel() / n, last = -1;
  const Tensor x = converted(*v.tensor, call.output);
  const ScalarType wide = call.output == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  Shape shape(v.sizes.begin(), v.sizes.end());  // of the chosen, whose dim is the last
  if (!one) shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(call.dim)), shape.push_back(call.k);
  const auto moved = [&](const Tensor& t, std::int64_t from, std::int64_t to) {
    return dense(one ? t : aten("movedim", "int", t, from, to));
  };
  Tensor largest = empty(shape, wide, v), indices = empty(shape, ScalarType::Long, v);
  const Tensor in = moved(converted(x, wide), call.dim, last);
  if (wide == ScalarType::Double)
    choose_rows<double>(in, rows, n, call.k, largest, indices);
  else
    choose_rows<float>(in, rows, n, call.k, largest, indices);
  indices = moved(indices, last, call.dim);
  const Dtype same = std::nullopt;
  if (!call.renormalize)
    return {dense(aten("gather", "", aten("softmax", "int", x, call.dim, same), call.dim, indices, false)), indices};
  const Tensor values = moved(aten("softmax", "int", largest, last, same), last, call.dim);
  return {torch::stable::to(values, call.output), indices};
}

#ifdef XGEMM_WITH_CUDA
Result run_cuda(const Call& call) {
  const TensorView& v = call.input;
  CudaScope scope(v);
  Result result{empty(call.shape, call.output, v), empty(call.shape, ScalarType::Long, v)};
  if (is_empty(call)) return result;

  // A dtype that changes values before they are compared takes a separate pass.
  const DType from = to_dtype(v.dtype), to = to_dtype(call.output);
  const reduce::Converted input(v, reduce::converts_on_load(from, to), call.output, scope);
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

XGEMM_REGISTER_FORWARD_ONLY(xgemm, topk_softmax, topk_softmax_op);

}  // namespace
}  // namespace xgemm
