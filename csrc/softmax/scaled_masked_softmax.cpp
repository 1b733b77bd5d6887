// scaled_masked_softmax: softmax(scale * input + mask) -> problem -> plan -> launch; the CPU path is ATen.
#include <limits>

#include "softmax/masked.h"
#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "softmax/launch.h"
#include "torch/cuda.h"
#endif

namespace xgemm {
namespace {

constexpr const char* kOp = "scaled_masked_softmax";

struct Call {
  TensorView input;
  std::optional<TensorView> mask;
  double scale;
  std::int64_t dim;
};

void check_mask(const TensorView& input, const TensorView& mask) {
  check_same_device(input, mask);
  check(mask.dtype == ScalarType::Bool || mask.dtype == ScalarType::Float || mask.dtype == input.dtype, kOp,
        "expected mask of dtype bool, float32 or input's ", to_string(input.dtype), ", got ", to_string(mask.dtype));
  bool fits = mask.sizes.size() <= input.sizes.size();
  for (std::size_t i = 1; fits && i <= mask.sizes.size(); ++i) {
    const std::int64_t have = mask.sizes[mask.sizes.size() - i];
    fits = have == 1 || have == input.sizes[input.sizes.size() - i];
  }
  check(fits, kOp, "expected mask to broadcast to input's shape ", to_string(input.sizes), ", got shape ", to_string(mask.sizes));
}

#ifdef XGEMM_WITH_CUDA
softmax::MaskKind kind_of(const Call& call) {
  if (!call.mask) return softmax::MaskKind::none;
  if (call.mask->dtype == ScalarType::Bool) return softmax::MaskKind::boolean;
  return call.mask->dtype == call.input.dtype ? softmax::MaskKind::own : softmax::MaskKind::f32;
}

Tensor run_cuda(const Call& call) {
  const TensorView& v = call.input;
  CudaScope scope(v);
  Tensor output = empty(v.sizes, v.dtype, v);
  for (std::int64_t s : v.sizes)
    if (s == 0) return output;
  const Shape none(v.sizes.size(), 0);
  const Shape mask_strides = call.mask ? broadcast_strides(call.mask->sizes, call.mask->strides, v.sizes) : none;
  const softmax::Masked plan =
      softmax::make_masked(kOp, to_dtype(v.dtype), kind_of(call), call.scale, v.sizes, v.strides, mask_strides, call.dim);
  softmax::launch_masked(plan, v.data, call.mask ? call.mask->data : nullptr, output.data_ptr(), scope.stream());
  scope.check_launch();
  return output;
}
#endif

Tensor run_cpu(const Call& call) {
  const ScalarType wide = call.input.dtype == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
  Tensor logits = aten("mul", "Tensor", torch::stable::to(*call.input.tensor, wide), scalar(call.scale, wide));
  if (call.mask && call.mask->dtype == ScalarType::Bool)
    logits = aten("masked_fill", "Tensor", logits, aten("logical_not", "", *call.mask->tensor),
                  scalar(-std::numeric_limits<double>::infinity(), wide));
  else if (call.mask)  // the stable ABI of 2.10 cannot spell add's alpha
    logits = torch::stable::subtract(logits, aten("neg", "", torch::stable::to(*call.mask->tensor, wide)));
  return torch::stable::to(aten("softmax", "int", logits, call.dim, std::optional<ScalarType>()), call.input.dtype);
}

Tensor scaled_masked_softmax_op(const Tensor& input, const std::optional<Tensor>& mask, double scale, std::int64_t dim) {
  Call call{view(kOp, "input", input), std::nullopt, scale, 0};
  check_dtype(call.input, kFloating);
  call.dim = wrap_dim(call.input, dim);
  if (mask) {
    call.mask = view(kOp, "mask", *mask);
    check_mask(call.input, *call.mask);
  }
#ifdef XGEMM_WITH_CUDA
  if (call.input.cuda) return run_cuda(call);
#endif
  return run_cpu(call);
}

XGEMM_REGISTER(xgemm, scaled_masked_softmax, scaled_masked_softmax_op);

}  // namespace
}  // namespace xgemm
