// xgemm_lab::sgemm: argument checks and the table of steps.
#include "lab/sgemm/sgemm.h"

#include <array>

#include "lab/checks.h"
#include "torch/cuda.h"
#include "torch/register.h"
#include "torch/tensor.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::sgemm";
constexpr std::int64_t kSteps = 9;

Tensor sgemm_op(const Tensor& a, const Tensor& b, const std::optional<Tensor>& c, std::int64_t step, double alpha, double beta) {
  const TensorView va = view(kOp, "a", a), vb = view(kOp, "b", b);
  for (const TensorView* v : {&va, &vb}) check_matrix(*v);
  check_same_device(va, vb);
  check(va.size(1) == vb.size(0), kOp, "expected a and b of shapes (m, k) and (k, n), got ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  check(step >= 1 && step <= kSteps, kOp, "expected step in [1, ", kSteps, "], got ", step);
  check(c.has_value() || beta == 0, kOp, "expected c when beta is not 0, got none");
  const std::array<std::int64_t, 2> shape{va.size(0), vb.size(1)};
  void* c_data = nullptr;
  if (c) {
    const TensorView vc = view(kOp, "c", *c);
    check_matrix(vc);
    check_same_device(va, vc);
    check(vc.size(0) == shape[0] && vc.size(1) == shape[1], kOp, "expected c of shape ", to_string(shape), ", got ",
          to_string(vc.sizes));
    c_data = vc.data;
  }
  const CudaScope scope(va);
  using namespace sgemm;
  for (const std::int64_t size : {shape[0], shape[1], va.size(1)})
    check(size <= kMaxSize, kOp, "expected sizes up to ", kMaxSize, ", got ", size);
  constexpr std::array<Step, kSteps> steps{naive,      coalesced, shared_tile,   block_tile_1d, block_tile_2d,
                                           vectorised, warp_tile, conflict_free, double_buffer};
  Tensor out = empty(shape, ScalarType::Float, va);
  if (shape[0] == 0 || shape[1] == 0) return out;
  steps[static_cast<std::size_t>(step - 1)]({.a = static_cast<const float*>(va.data),
                                             .b = static_cast<const float*>(vb.data),
                                             .c = static_cast<const float*>(c_data),
                                             .out = static_cast<float*>(view(kOp, "out", out).data),
                                             .m = static_cast<int>(shape[0]),
                                             .n = static_cast<int>(shape[1]),
                                             .k = static_cast<int>(va.size(1)),
                                             .alpha = static_cast<float>(alpha),
                                             .beta = static_cast<float>(beta)},
                                            scope.stream());
  scope.check_launch();
  return out;
}

XGEMM_REGISTER(xgemm_lab, sgemm, sgemm_op);

}  // namespace
}  // namespace xgemm::lab
