// xgemm_lab::kernel_attributes and best_block_size: what the compiler and the occupancy API say of a kernel of the lab.
#include "lab/kernels.h"

#include <string_view>

#include "lab/checks.h"
#include "torch/cuda.h"
#include "torch/register.h"
#include "torch/tensor.h"

namespace xgemm::lab {

const NamedKernel& named_kernel(const char* op, const char* name) {
  const NamedKernel* found = named_kernels;
  while (found && std::string_view(found->name) != name) found = found->next;
  check(found, op, "expected the name of a kernel of the lab, got ", name);
  return *found;
}

namespace {

Tensor kernel_attributes(const Tensor& x, const Text& name) {
  const TensorView v = view("lab::kernel_attributes", "x", x);
  const CudaScope scope(v);
  const NamedKernel& found = named_kernel(v.op, name.c_str());
  cudaFuncAttributes attributes{};
  int blocks = 0;
  if (found.dynamic_shared > 48 * 1024)
    cudaFuncSetAttribute(found.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(found.dynamic_shared));
  cudaFuncGetAttributes(&attributes, found.kernel);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, found.kernel, found.threads, found.dynamic_shared);
  scope.check_launch();
  return host_numbers(v, {attributes.numRegs, static_cast<std::int64_t>(attributes.sharedSizeBytes + found.dynamic_shared),
                          static_cast<std::int64_t>(attributes.localSizeBytes), found.threads, blocks});
}

Tensor best_block_size(const Tensor& x, const Text& name) {
  const TensorView v = view("lab::best_block_size", "x", x);
  const CudaScope scope(v);
  const NamedKernel& found = named_kernel(v.op, name.c_str());
  cudaFuncAttributes attributes{};
  int threads = 0, min_grid = 0;
  cudaFuncGetAttributes(&attributes, found.kernel);
  cudaOccupancyMaxPotentialBlockSizeVariableSMem(
      &min_grid, &threads, found.kernel, [&](int block) { return static_cast<std::size_t>(block) * found.shared_per_thread; });
  scope.check_launch();
  return host_numbers(v, {threads, min_grid, attributes.numRegs});
}

XGEMM_REGISTER(xgemm_lab, kernel_attributes, kernel_attributes);
XGEMM_REGISTER(xgemm_lab, best_block_size, best_block_size);

}  // namespace
}  // namespace xgemm::lab
