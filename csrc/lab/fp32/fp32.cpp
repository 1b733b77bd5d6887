// xgemm_lab::fp32_gemm: argument checks, the split pass's memory and the table of variants.
#include "lab/fp32/fp32.h"

#include <array>

#include "lab/checks.h"
#include "lab/tensor/tensor.h"
#include "torch/cuda.h"
#include "torch/register.h"
#include "torch/tensor.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::fp32_gemm";

Tensor fp32_gemm_op(const Tensor& a, const Tensor& b, const Text& variant) {
  const TensorView va = view(kOp, "a", a), vb = view(kOp, "b", b);
  for (const TensorView* v : {&va, &vb}) check_matrix(*v);
  check_same_device(va, vb);
  check(va.size(1) == vb.size(1), kOp, "expected a and b of shapes (m, k) and (n, k), got ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  const std::size_t place = place_of(kOp, "variant", variant, {"fp16", "split", "promoted", "scaled"});
  const CudaScope scope(va);
  using namespace fp32;
  const std::int64_t m = va.size(0), n = vb.size(0), k = va.size(1);
  check_whole_tiles(va, vb, tensor::kMultiple, tensor::kMultipleK);
  check(scope.properties().major == 9, kOp, "expected a GPU of compute capability 9.0, got ", scope.properties().major, ".",
        scope.properties().minor);
  Tensor out = empty(std::array{m, n}, ScalarType::Float, va);
  Problem problem{.a = {}, .b = {}, .out = static_cast<float*>(view(kOp, "out", out).data), .k = static_cast<int>(k)};
  std::vector<Tensor> parts;  // kept until the launches are made; the allocator orders their reuse by the stream
  const auto prepare = [&](Operand& operand, const TensorView& v) {
    const std::int64_t rows = v.size(0);
    parts.push_back(empty(std::array{2 * rows, k}, ScalarType::Half, v));
    parts.push_back(empty(std::array{rows}, ScalarType::Int, v));
    operand.x = static_cast<const float*>(v.data);
    operand.hi = static_cast<__half*>(view(kOp, "parts", parts[parts.size() - 2]).data);
    operand.lo = operand.hi + rows * k;
    operand.exponent = static_cast<int*>(view(kOp, "exponents", parts.back()).data);
    operand.rows = static_cast<int>(rows);
    for (auto [map, data] : {std::pair{&operand.map_hi, operand.hi}, std::pair{&operand.map_lo, operand.lo}})
      check(make_tensor_map(*map, {.data = data,
                                   .dtype = DType::f16,
                                   .sizes = {k, rows, 1},
                                   .strides = {k, k * rows},
                                   .box = {tensor::kBoxK, tensor::kBoxRows},
                                   .swizzle_bytes = 128}),
            kOp, "the driver made no tensor map");
    split(operand, problem.k, variant == "scaled", scope.stream());
  };
  prepare(problem.a, va);
  prepare(problem.b, vb);
  product(problem, static_cast<Sum>(std::min<std::size_t>(place, 2)), scope.stream());  // scaled is promoted too
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, fp32_gemm, fp32_gemm_op);

}  // namespace
}  // namespace xgemm::lab
