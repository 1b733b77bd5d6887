// xgemm_lab::tensor_gemm: argument checks, tensor maps and the table of steps.

#include "lab/tensor/tensor.h"

#include <array>

#include "lab/checks.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::tensor_gemm";
constexpr std::int64_t kFirstHopper = 11;

Tensor tensor_gemm_op(const Tensor& a, const Tensor& b, std::int64_t step) {
  const TensorView va = view(kOp, "a", a), vb = view(kOp, "b", b);
  check_product(va, vb, true, ScalarType::BFloat16);
  const auto& chosen = step_of<tensor::Step>(kOp, step, 9, 15);
  const CudaScope scope(va);
  using namespace tensor;
  const std::int64_t m = va.size(0), n = vb.size(0), k = va.size(1);
  check_whole_tiles(va, vb, kMultiple, kMultipleK);
  check_aligned(va);
  check_aligned(vb);
  Tensor out = empty(std::array{m, n}, ScalarType::BFloat16, va);
  Problem problem{.a = data<__nv_bfloat16>(va),
                  .b = data<__nv_bfloat16>(vb),
                  .out = data<__nv_bfloat16>(out),
                  .m = static_cast<int>(m),
                  .n = static_cast<int>(n),
                  .k = static_cast<int>(k),
                  .sm_count = scope.properties().sm_count};
  if (step >= kFirstHopper) {
    check_hopper(kOp, scope, " for step ", step);
    check(make_maps(problem), kOp, "the driver made no tensor map");
  }
  chosen.launch(problem, scope.stream());
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, tensor_gemm, tensor_gemm_op);

}  // namespace
}  // namespace xgemm::lab
