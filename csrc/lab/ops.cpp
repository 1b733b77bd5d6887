// Every schema of torch.ops.xgemm_lab: the steps of the classic optimisation ladders, kept runnable so that they can be measured.
// CUDA only; inputs are contiguous. Nothing in torch.ops.xgemm calls these.
#include <torch/csrc/stable/library.h>

STABLE_TORCH_LIBRARY(xgemm_lab, m) {
  // alpha * (a @ b) + beta * c, fp32 row-major; step 1 naive ... 7 warp tile (step 8 of the ladder is torch.ops.xgemm itself).
  m.def("sgemm(Tensor a, Tensor b, Tensor? c=None, *, int step, float alpha=1, float beta=0) -> Tensor");
  // Sum of all elements, version 0 (interleaved, modulo) ... 7 (shuffles only). float32 gives float32; int32 gives int32, wrapping.
  m.def("reduce_sum(Tensor x, int version) -> Tensor");
  // Softmax over the last dim, fp32; variant: naive (overflows above 88 by design), safe, online.
  m.def("softmax(Tensor x, str variant) -> Tensor");
}
