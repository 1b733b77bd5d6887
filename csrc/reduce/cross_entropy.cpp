// cross_entropy: torch.nn.functional.cross_entropy's semantics for class indices. One reduction of the logits gives a loss per
// row; a second one adds or averages the losses. The CPU path is ATen.
#include <algorithm>
#include <numeric>

#include "reduce/plan.h"
#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "device/environment.h"
#include "reduce/converted.h"
#endif

namespace xgemm {
namespace {

constexpr const char* kOp = "cross_entropy";

enum class Reduction : std::int64_t { none, mean, sum };  // ATen's numbers

struct Call {
  TensorView input, target;
  Reduction reduction;
  std::int64_t ignore_index;
  double smoothing;
  std::size_t class_dim() const { return input.sizes.size() == 1 ? 0 : 1; }
};

Call check_arguments(const Tensor& input, const Tensor& target, std::int64_t ignore_index, const std::string& reduction,
                     double smoothing) {
  constexpr std::string_view kReductions[] = {"none", "mean", "sum"};
  const auto number = std::ranges::find(kReductions, reduction) - kReductions;
  const Call call{view(kOp, "input", input), view(kOp, "target", target), static_cast<Reduction>(number), ignore_index,
                  smoothing};
  check(number < std::ssize(kReductions), kOp, "expected reduction to be none, mean or sum, got \"", reduction, "\"");
  check_dtype(call.input, kFloating);
  check_dtype(call.target, {ScalarType::Long, ScalarType::Byte});
  check_same_device(call.input, call.target);
  check(smoothing >= 0 && smoothing <= 1, kOp, "expected label_smoothing in [0, 1], got ", smoothing);
  const ShapeRef sizes = call.input.sizes;
  check(!sizes.empty(), kOp, "expected input of shape (C), (N, C) or (N, C, ...), got shape ", to_string(sizes));
  const ShapeRef given = call.target.sizes;
  const bool one_batch = sizes.size() == 1 ? given.size() != 1 : !given.empty() && given[0] == sizes[0];
  check(one_batch, kOp, "expected input and target of one batch size, got shapes ", to_string(sizes), " and ", to_string(given));
  Shape wanted(sizes.begin(), sizes.end());
  wanted.erase(wanted.begin() + static_cast<std::ptrdiff_t>(call.class_dim()));
  check(std::equal(wanted.begin(), wanted.end(), given.begin(), given.end()), kOp, "expected target of shape ", to_string(wanted),
        " for input of shape ", to_string(sizes), ", got ", to_string(given));
  return call;
}

#ifdef XGEMM_WITH_CUDA
Tensor run_cuda(const Call& call) {
  const TensorView &v = call.input, &t = call.target;
  CudaScope scope(v);
  const std::int64_t count = t.numel();
  const bool each = call.reduction == Reduction::none;
  Tensor output = empty(each ? t.sizes : ShapeRef(), v.dtype, v);
  const DType dtype = to_dtype(v.dtype), wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const ScalarType wide_type = wide == DType::f64 ? ScalarType::Double : ScalarType::Float;
  const Tensor losses = each ? output : empty({&count, 1}, wide_type, v);
  std::optional<Tensor> means;
  if (count > 0) {
    const bool as_is = t.dtype == ScalarType::Long && reduce::is_dense({t.data, DType::i64, t.sizes, t.strides});
    const reduce::Converted targets(t, as_is, ScalarType::Long, scope);
    const std::uint64_t classes = std::uint64_t{1} << call.class_dim();
    const bool dense = !batch_invariant() || reduce::has_dense_rows({v.data, dtype, v.sizes, v.strides}, classes);
    const reduce::Converted input(v, dense, v.dtype, scope, classes);
    reduce::Problem problem{.kind = reduce::Kind::mean,
                            .source = input.source(),
                            .reduced = input.rows(),
                            .out = wide,
                            .batch_invariant = batch_invariant()};
    if (call.smoothing > 0) {
      means = empty(t.sizes, wide_type, v);
      reduce::run(kOp, problem, means->data_ptr(), scope);
    }
    problem.kind = reduce::Kind::cross_entropy;
    problem.loss = {static_cast<const std::int64_t*>(targets.source().data), call.ignore_index, call.smoothing,
                    means ? means->data_ptr() : nullptr, each ? 0.0f : -0.0f};
    if (each) problem.out = dtype;
    reduce::run(kOp, problem, losses.data_ptr(), scope);
  }
  if (!each) {
    const std::int64_t step = 1;
    const auto kind = call.reduction == Reduction::mean ? reduce::Kind::mean_loss : reduce::Kind::sum;
    const reduce::Source source{losses.data_ptr(), wide, {&count, 1}, {&step, 1}};
    const reduce::Problem problem{
        .kind = kind, .source = source, .reduced = 1, .out = dtype, .batch_invariant = batch_invariant()};
    reduce::run(kOp, problem, output.data_ptr(), scope);
  }
  return output;
}
#endif

/// ATen's loss, in fp32 or wider, because sums of the half types overflow.
Tensor loss_of(const Call& call, const Tensor& input, const Tensor& target, Reduction reduction, ScalarType wide) {
  return aten("cross_entropy_loss", "", converted(input, wide), target, std::optional<Tensor>(),
              static_cast<std::int64_t>(reduction), call.ignore_index, call.smoothing);
}

/// Computes rows in pieces whose log-probabilities stay in the cache: one loss per row, then their sum or mean.
template <class T>
Tensor loss_in_pieces(const Call& call, Tensor target, std::int64_t rows, std::int64_t counted, ScalarType wide) {
  Tensor losses = empty(call.target.sizes, wide, call.target), input = *call.input.tensor;
  for (std::int64_t at = 0, n = call.input.size(0); at < n; at += rows) {
    const std::int64_t count = std::min(rows, n - at);
    Tensor part = torch::stable::narrow(losses, 0, at, count);
    torch::stable::copy_(part, loss_of(call, torch::stable::narrow(input, 0, at, count),
                                       torch::stable::narrow(target, 0, at, count), Reduction::none, wide));
  }
  if (call.reduction == Reduction::none) return converted(losses, call.input.dtype);
  const T* const loss = static_cast<const T*>(losses.data_ptr());
  const double sum = std::accumulate(loss, loss + call.target.numel(), 0.0);
  return scalar(call.reduction == Reduction::sum ? sum : sum / static_cast<double>(counted), call.input.dtype);
}

/// ATen requires int64 targets, and its own check prints a stack trace.
Tensor run_cpu(const Call& call) {
  const ScalarType own = call.input.dtype, wide = own == ScalarType::Double ? own : ScalarType::Float;
  const Tensor target = torch::stable::contiguous(converted(*call.target.tensor, ScalarType::Long));
  const std::int64_t classes = call.input.size(static_cast<std::int64_t>(call.class_dim())), count = call.target.numel();
  const auto* const t = static_cast<const std::int64_t*>(target.data_ptr());
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    check((t[i] >= 0 && t[i] < classes) || t[i] == call.ignore_index, kOp, "expected targets in [0, ", classes,
          ") or ignore_index ", call.ignore_index, ", got ", t[i]);
    counted += t[i] != call.ignore_index;
  }
  constexpr std::int64_t kPiece = 1 << 17;  // elements per thread
  const std::int64_t elements = call.input.numel(), most = kPiece * torch::stable::get_num_threads();
  if (call.input.dim() == 1 || elements <= most)
    return converted(loss_of(call, *call.input.tensor, target, call.reduction, wide), own);
  const std::int64_t rows = std::max<std::int64_t>(1, most * call.input.size(0) / elements);
  return wide == ScalarType::Double ? loss_in_pieces<double>(call, target, rows, counted, wide)
                                    : loss_in_pieces<float>(call, target, rows, counted, wide);
}

Tensor cross_entropy(const Tensor& input, const Tensor& target, std::int64_t ignore_index, const Text& reduction,
                     double label_smoothing) {
  const Call call = check_arguments(input, target, ignore_index, reduction, label_smoothing);
#ifdef XGEMM_WITH_CUDA
  if (call.input.cuda) return run_cuda(call);
#endif
  return run_cpu(call);
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, cross_entropy, cross_entropy);

}  // namespace
}  // namespace xgemm
