#include "torch/aten.h"

#include "torch/symbols.h"

namespace xgemm {
namespace {

bool onednn_supports(const char* op) {
  StableIValue stack[4] = {};
  return torch_call_dispatcher(op, "", stack, TORCH_ABI_VERSION) != TORCH_SUCCESS || torch::stable::detail::to<bool>(stack[0]);
}

}  // namespace

bool multiplies(ScalarType half) {
  static const bool bf16 = onednn_supports("mkldnn::_is_mkldnn_bf16_supported"),
                    f16 = onednn_supports("mkldnn::_is_mkldnn_fp16_supported");
  return half == ScalarType::BFloat16 ? bf16 : half == ScalarType::Half && f16;
}

Rounding product_rounding() {
  // oneDNN rounds fp32 operands on CPUs that have units for the narrower type; those for TF32 came with fp16's.
  static const bool f16 = multiplies(ScalarType::Half), any = f16 || multiplies(ScalarType::BFloat16);
  if (!any) return Rounding::none;
  constexpr auto kUnknown = Rounding::bf16;
  static const ContextSetting<int> precision("_ZNK2at7Context22float32MatmulPrecisionEv", static_cast<int>(kUnknown));
  Rounding asked = kUnknown;
  try {
    asked = static_cast<Rounding>(precision());
  } catch (const std::exception&) {  // the setting was made per backend
  }
  return asked == Rounding::tf32 && !f16 ? Rounding::none : asked;
}

Tensor strided(const Tensor& t, ShapeRef sizes, ShapeRef strides, std::int64_t offset) {
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(t.get(), static_cast<std::int64_t>(sizes.size()), sizes.data(),
                                                        strides.data(), offset, &out));
  return Tensor(out);
}

Shape contiguous_strides(ShapeRef shape) {
  Shape strides(shape.size());
  std::int64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0; step *= std::max<std::int64_t>(shape[i], 1)) strides[i] = step;
  return strides;
}

Tensor dense(const Tensor& t) {
  const bool is_contiguous = t.is_contiguous();
  if (!is_contiguous) check_room_for_copy(t, t.scalar_type());
  const Tensor whole = is_contiguous ? t : torch::stable::contiguous(t);
  return strided(whole, sizes_of(whole), contiguous_strides(sizes_of(whole)));
}

}  // namespace xgemm
