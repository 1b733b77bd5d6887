// scaled_masked_softmax: softmax(scale * input + mask) -> problem -> plan -> launch; the CPU path is ATen.
#include <algorithm>
#include <limits>

#include "softmax/plan.h"
#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "device/environment.h"
#include "reduce/launch.h"
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

#ifdef XGEMM_WITH_CUDA
Tensor run_cuda(const Call& call) {
  const TensorView& v = call.input;
  CudaScope scope(v);
  Tensor output = empty(v.sizes, v.dtype, v);
  if (v.numel() == 0) return output;
  const TensorView mask = call.mask.value_or(TensorView{.dtype = v.dtype});
  const Shape mask_strides = broadcast_strides(mask.sizes, mask.strides, v.sizes);
  const DType dtype = to_dtype(v.dtype);
  const softmax::MaskKind kind = !call.mask                       ? softmax::MaskKind::none
                                 : mask.dtype == ScalarType::Bool ? softmax::MaskKind::boolean
                                 : mask.dtype == v.dtype          ? softmax::MaskKind::own
                                                                  : softmax::MaskKind::f32;
  const auto run = [&](ShapeRef sizes, ShapeRef strides, ShapeRef of_mask, std::int64_t dim, void* out, bool in_rows) {
    const softmax::Masked plan = softmax::make_masked(kOp, dtype, kind, call.scale, sizes, strides, of_mask, dim, in_rows);
    softmax::launch_masked(plan, v.data, mask.data, out, scope.stream());
    scope.check_launch();
  };
  const auto last = static_cast<std::size_t>(std::max<std::int64_t>(v.dim() - 1, 0)), at = static_cast<std::size_t>(call.dim);
  if (!batch_invariant() || at == last) {
    run(v.sizes, v.strides, mask_strides, call.dim, output.data_ptr(), batch_invariant());
    return output;
  }
  // With batch invariance the dim becomes the last one, and the results are copied back.
  const auto moved = [&](ShapeRef from) {
    Shape to(from.begin(), from.end());
    std::rotate(to.begin() + call.dim, to.begin() + call.dim + 1, to.end());
    return to;
  };
  const Shape sizes = moved(v.sizes);
  const Tensor rows = empty(sizes, v.dtype, v);
  run(sizes, moved(v.strides), moved(mask_strides), v.dim() - 1, rows.data_ptr(), true);
  const TensorView dense = view(kOp, "rows", rows);
  Shape back(dense.strides.begin(), dense.strides.end());
  std::rotate(back.begin() + call.dim, back.end() - 1, back.end());
  reduce::launch_cast(kOp, {rows.data_ptr(), dtype, v.sizes, back}, output.data_ptr(), dtype, scope.stream());
  scope.check_launch();
  return output;
}
#endif

/// By ATen, in fp32 or wider.
Tensor softmax_wide(const Tensor& input, const std::optional<Tensor>& mask, double scale, std::int64_t dim, ScalarType wide) {
  Tensor logits = converted(input, wide);
  const bool additive = mask && mask->scalar_type() != ScalarType::Bool;
  AtenTensorHandle scaled = nullptr;
  if (additive) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_add_Tensor(converted(*mask, wide).get(), logits.get(), scale, &scaled));
  } else if (scale != 1) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mul_Scalar(logits.get(), scale, &scaled));
  }
  if (scaled) logits = Tensor(scaled);
  if (mask && !additive) logits = aten("where", "self", *mask, logits, scalar(-std::numeric_limits<double>::infinity(), wide));
  return aten("_softmax", "", logits, dim, false);
}

Tensor slice(Tensor x, std::int64_t dim, std::int64_t at, std::int64_t count) { return torch::stable::narrow(x, dim, at, count); }

/// Writes the softmax of `input` to `output` in pieces of about `most` elements.
void softmax_pieces(const Tensor& input, const std::optional<Tensor>& mask, const Call& call, ScalarType wide, std::int64_t most,
                    Tensor output) {
  const std::int64_t elements = input.numel();
  std::int64_t cut = 0;  // the first dim that can be divided
  while (cut < input.dim() && (cut == call.dim || input.size(cut) <= 1)) ++cut;
  if (elements <= most || cut == input.dim()) {
    torch::stable::copy_(output, softmax_wide(input, mask, call.scale, call.dim, wide));
    return;
  }
  const std::int64_t size = input.size(cut), step = std::max<std::int64_t>(1, most * size / elements);
  const std::int64_t mask_cut = mask ? cut - (input.dim() - mask->dim()) : -1;
  for (std::int64_t at = 0; at < size; at += step) {
    const std::int64_t count = std::min(step, size - at);
    std::optional<Tensor> part = mask;
    if (mask_cut >= 0 && mask->size(mask_cut) != 1) part = slice(*mask, mask_cut, at, count);
    softmax_pieces(slice(input, cut, at, count), part, call, wide, most, slice(output, cut, at, count));
  }
}

Tensor run_cpu(const Call& call, const std::optional<Tensor>& mask) {
  constexpr std::int64_t kPiece = 1 << 17;  // elements per thread: the three intermediate tensors stay in the cache
  const ScalarType own = call.input.dtype, wide = own == ScalarType::Double ? own : ScalarType::Float;
  const Tensor& input = *call.input.tensor;
  const std::int64_t most = kPiece * torch::stable::get_num_threads();
  if (call.input.numel() <= most) return converted(softmax_wide(input, mask, call.scale, call.dim, wide), own);
  Tensor output = empty(call.input.sizes, own, call.input);
  softmax_pieces(input, mask, call, wide, most, output);
  return output;
}

Tensor scaled_masked_softmax_op(const Tensor& input, const std::optional<Tensor>& mask, double scale, std::int64_t dim) {
  Call call{view(kOp, "input", input), std::nullopt, scale, 0};
  const TensorView& v = call.input;
  check_dtype(v, kFloating);
  call.dim = wrap_dim(v, dim);
  if (mask) {
    const TensorView m = call.mask.emplace(view(kOp, "mask", *mask));
    check_same_device(v, m);
    check(m.dtype == ScalarType::Bool || m.dtype == ScalarType::Float || m.dtype == v.dtype, kOp,
          "expected mask of dtype bool, float32 or input's ", to_string(v.dtype), ", got ", to_string(m.dtype));
    check(broadcasts_to(m.sizes, v.sizes), kOp, "expected mask to broadcast to input's shape ", to_string(v.sizes),
          ", got shape ", to_string(m.sizes));
  }
#ifdef XGEMM_WITH_CUDA
  if (v.cuda) return run_cuda(call);
#endif
  return run_cpu(call, mask);
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, scaled_masked_softmax, scaled_masked_softmax_op);

}  // namespace
}  // namespace xgemm
