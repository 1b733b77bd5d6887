#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "torch/cuda.h"
#endif
namespace xgemm {
namespace {
Tensor matmul(const Tensor& a, const Tensor& b, const std::string& precision) {
  const TensorView va = view("matmul", "a", a), vb = view("matmul", "b", b);
  check_dtype(va, kFloating);
  check_same_device(va, vb);
  check_same_dtype(va, vb);
  (void)precision;
  return aten("matmul", "", a, b);
}
XGEMM_REGISTER(xgemm, matmul, matmul);
}  // namespace
}  // namespace xgemm
