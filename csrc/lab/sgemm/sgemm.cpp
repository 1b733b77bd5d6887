// xgemm_lab::sgemm: argument checks and the table of steps.
#include "lab/sgemm/sgemm.h"

#include <array>

#include "lab/checks.h"
#include "torch/register.h"

namespace xgemm::lab {
namespace {

constexpr const char* kOp = "lab::sgemm";

Tensor sgemm_op(const Tensor& a, const Tensor& b, const std::optional<Tensor>& c, std::int64_t step, double alpha, double beta) {
  const TensorView va = view(kOp, "a", a), vb = view(kOp, "b", b);
  check_product(va, vb, false);
  const auto& chosen = step_of<sgemm::Step>(kOp, step, 1, 9);
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
  Tensor out = empty(shape, ScalarType::Float, va);
  if (shape[0] == 0 || shape[1] == 0) return out;
  chosen.launch({.a = data<float>(va),
                 .b = data<float>(vb),
                 .c = static_cast<const float*>(c_data),
                 .out = data<float>(out),
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
