// xgemm_lab::softmax: argument checks and the table of variants.
#include <limits>

#include "torch/register.h"
#include "torch/tensor.h"
#ifdef XGEMM_WITH_CUDA
#include "lab/softmax/softmax.h"
#include "torch/cuda.h"
#endif
#include "lab/checks.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::softmax";

Tensor softmax_op(const Tensor& x, const Text& variant) {
  const TensorView v = view(kOp, "x", x);
  check_matrix(v);
  check(variant == "naive" || variant == "safe" || variant == "online" || variant == "online4", kOp,
        "expected variant to be naive, safe, online or online4, got ", variant);
  check(v.size(0) <= std::numeric_limits<std::int32_t>::max(), kOp, "expected fewer than 2^31 rows, got ", v.size(0));
  check_cuda(v);
#ifdef XGEMM_WITH_CUDA
  CudaScope scope(v);
  Tensor out = empty(v.sizes, ScalarType::Float, v);
  if (v.numel() == 0) return out;
  const auto step = variant == "naive"    ? softmax::naive
                    : variant == "safe"   ? softmax::safe
                    : variant == "online" ? softmax::online
                                          : softmax::online4;
  step({.x = static_cast<const float*>(v.data),
        .y = static_cast<float*>(view(kOp, "out", out).data),
        .rows = v.size(0),
        .cols = v.size(1)},
       scope.stream());
  scope.check_launch();
  return out;
#else
  fail_without_cuda(kOp);
#endif
}

XGEMM_REGISTER(xgemm_lab, softmax, softmax_op);

}  // namespace
}  // namespace xgemm::lab
