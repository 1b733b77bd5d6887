// xgemm_lab::tensor_gemm: argument checks, tensor maps and the table of steps.
#include "torch/tensor.h"

#include <array>

#include "lab/checks.h"
#include "lab/tensor/tensor.h"
#include "torch/cuda.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::tensor_gemm";
constexpr std::int64_t kFirst = 9, kLast = 15, kFirstHopper = 11;

Tensor tensor_gemm_op(const Tensor& a, const Tensor& b, std::int64_t step) {
  const TensorView va = view(kOp, "a", a), vb = view(kOp, "b", b);
  for (const TensorView* v : {&va, &vb}) check_matrix(*v, ScalarType::BFloat16);
  check_same_device(va, vb);
  check(va.size(1) == vb.size(1), kOp, "expected a and b of shapes (m, k) and (n, k), got ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  check(step >= kFirst && step <= kLast, kOp, "expected step in [", kFirst, ", ", kLast, "], got ", step);
  const CudaScope scope(va);
  using namespace tensor;
  const std::int64_t m = va.size(0), n = vb.size(0), k = va.size(1);
  check_whole_tiles(va, vb, kMultiple, kMultipleK);
  for (const TensorView* v : {&va, &vb})
    check(reinterpret_cast<std::uintptr_t>(v->data) % 16 == 0, kOp, "expected ", v->name,
          " at an address that is a multiple of 16");
  constexpr std::array<Step, kLast - kFirst + 1> steps{wmma_naive,         mma_sync,       wgmma_tma, warp_specialised,
                                                       persistent_cluster, wgmma_cp_async, tma_store};
  Tensor out = empty(std::array{m, n}, ScalarType::BFloat16, va);
  Problem problem{.a = static_cast<const __nv_bfloat16*>(va.data),
                  .b = static_cast<const __nv_bfloat16*>(vb.data),
                  .out = static_cast<__nv_bfloat16*>(view(kOp, "out", out).data),
                  .m = static_cast<int>(m),
                  .n = static_cast<int>(n),
                  .k = static_cast<int>(k),
                  .sm_count = scope.properties().sm_count};
  if (step >= kFirstHopper) {
    check(scope.properties().major == 9, kOp, "expected a GPU of compute capability 9.0 for step ", step, ", got ",
          scope.properties().major, ".", scope.properties().minor);
    check(make_maps(problem), kOp, "the driver made no tensor map");
  }
  steps[static_cast<std::size_t>(step - kFirst)](problem, scope.stream());
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, tensor_gemm, tensor_gemm_op);

}  // namespace
}  // namespace xgemm::lab
