// xgemm_lab::softmax: argument checks and the table of variants.
#include "lab/softmax/softmax.h"

#include <array>
#include <limits>

#include "lab/checks.h"
#include "torch/cuda.h"
#include "torch/register.h"
#include "torch/tensor.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::softmax";

Tensor softmax_op(const Tensor& x, const Text& variant) {
  const TensorView v = view(kOp, "x", x);
  check_matrix(v);
  const std::size_t place = place_of(kOp, "variant", variant, {"naive", "safe", "online", "online4"});
  check(v.size(0) <= std::numeric_limits<std::int32_t>::max(), kOp, "expected fewer than 2^31 rows, got ", v.size(0));
  const CudaScope scope(v);
  Tensor out = empty(v.sizes, ScalarType::Float, v);
  if (v.numel() == 0) return out;
  constexpr std::array steps{softmax::naive, softmax::safe, softmax::online, softmax::online4};
  steps[place]({.x = static_cast<const float*>(v.data),
                .y = static_cast<float*>(view(kOp, "out", out).data),
                .rows = v.size(0),
                .cols = v.size(1)},
               scope.stream());
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, softmax, softmax_op);

}  // namespace
}  // namespace xgemm::lab
