// xgemm_lab::softmax: argument checks and the table of variants.
#include "lab/softmax/softmax.h"

#include <limits>

#include "lab/checks.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::softmax";

Tensor softmax_op(const Tensor& x, const Text& variant) {
  const TensorView v = view(kOp, "x", x);
  check_matrix(v);
  const std::size_t place = place_of(kOp, "variant", variant, {"naive", "safe", "online", "online4"});
  check(v.size(0) <= std::numeric_limits<std::int32_t>::max(), kOp, "expected fewer than 2^31 rows, got ", v.size(0));
  const auto& chosen = step_of<softmax::Step>(kOp, static_cast<std::int64_t>(place), 0, 3);
  const CudaScope scope(v);
  Tensor out = empty(v.sizes, ScalarType::Float, v);
  if (v.numel() == 0) return out;
  chosen.launch({.x = data<float>(v), .y = data<float>(out), .rows = v.size(0), .cols = v.size(1)}, scope.stream());
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, softmax, softmax_op);

}  // namespace
}  // namespace xgemm::lab
