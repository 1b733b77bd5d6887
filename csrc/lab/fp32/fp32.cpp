// xgemm_lab::fp32_gemm: argument checks, the split pass's memory and the table of variants.
#include "lab/fp32/fp32.h"

#include <array>

#include "lab/checks.h"
#include "lab/tensor/tensor.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::fp32_gemm";

Tensor fp32_gemm_op(const Tensor& a, const Tensor& b, const Text& variant) {
  const TensorView va = view(kOp, "a", a), vb = view(kOp, "b", b);
  check_product(va, vb, true);
  const std::size_t place = place_of(kOp, "variant", variant, {"fp16", "split", "promoted", "scaled"});
  const auto& chosen = step_of<fp32::Step>(kOp, static_cast<std::int64_t>(place), 0, 3);
  const CudaScope scope(va);
  using namespace fp32;
  const std::int64_t m = va.size(0), n = vb.size(0), k = va.size(1);
  check_whole_tiles(va, vb, tensor::kMultiple, tensor::kMultipleK);
  check_hopper(kOp, scope);
  Tensor out = empty(std::array{m, n}, ScalarType::Float, va);
  Problem problem{.a = {}, .b = {}, .out = data<float>(out), .k = static_cast<int>(k)};
  std::vector<Tensor> parts;  // kept until the launches are made; the allocator orders their reuse by the stream
  const auto prepare = [&](Operand& operand, const TensorView& v) {
    const std::int64_t rows = v.size(0);
    parts.push_back(empty(std::array{2 * rows, k}, ScalarType::Half, v));
    parts.push_back(empty(std::array{rows}, ScalarType::Int, v));
    operand.x = data<float>(v);
    operand.hi = data<__half>(parts[parts.size() - 2]);
    operand.lo = operand.hi + rows * k;
    operand.exponent = data<int>(parts.back());
    operand.rows = static_cast<int>(rows);
    check(tensor::make_map(operand.map_hi, operand.hi, rows, k, DType::f16) &&
              tensor::make_map(operand.map_lo, operand.lo, rows, k, DType::f16),
          kOp, "the driver made no tensor map");
    split(operand, problem.k, variant == "scaled", scope.stream());
  };
  prepare(problem.a, va);
  prepare(problem.b, vb);
  chosen.launch(problem, scope.stream());
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, fp32_gemm, fp32_gemm_op);

}  // namespace
}  // namespace xgemm::lab
