// xgemm_lab::kernel_attributes: what the compiler and the occupancy API say of a kernel of the lab.
#include "lab/kernels.h"

#include <array>
#include <string_view>

#include "torch/register.h"
#include "torch/tensor.h"
#ifdef XGEMM_WITH_CUDA
#include "torch/cuda.h"
#endif
#include "lab/checks.h"

namespace xgemm::lab {

const NamedKernel& named_kernel(const char* op, const char* name) {
  const NamedKernel* found = named_kernels;
  while (found && std::string_view(found->name) != name) found = found->next;
  check(found, op, "expected the name of a kernel of the lab, got ", name);
  return *found;
}

namespace {

constexpr const char* kOp = "lab::kernel_attributes";

Tensor kernel_attributes(const Tensor& x, const Text& name) {
  TensorView v = view(kOp, "x", x);
  check_cuda(v);
#ifdef XGEMM_WITH_CUDA
  const NamedKernel& found = named_kernel(kOp, name.c_str());
  const CudaScope scope(v);
  cudaFuncAttributes attributes{};
  int blocks = 0;
  if (found.dynamic_shared > 48 * 1024)
    cudaFuncSetAttribute(found.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(found.dynamic_shared));
  cudaFuncGetAttributes(&attributes, found.kernel);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, found.kernel, found.threads, found.dynamic_shared);
  scope.check_launch();
  v.cuda = false;  // the answer is for the host
  const std::array<std::int64_t, 1> shape{5};
  const Tensor out = empty(shape, ScalarType::Long, v);
  auto* values = static_cast<std::int64_t*>(view(kOp, "out", out).data);
  values[0] = attributes.numRegs;
  values[1] = static_cast<std::int64_t>(attributes.sharedSizeBytes + found.dynamic_shared);
  values[2] = static_cast<std::int64_t>(attributes.localSizeBytes);
  values[3] = found.threads;
  values[4] = blocks;
  return out;
#else
  (void)name;
  fail_without_cuda(kOp);
#endif
}

XGEMM_REGISTER(xgemm_lab, kernel_attributes, kernel_attributes);

}  // namespace
}  // namespace xgemm::lab
