// The lab's kernels by name, for xgemm_lab::kernel_attributes: registers, shared memory, resident blocks.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace xgemm::lab {

struct NamedKernel {
  std::string name;
  const void* kernel;
  int threads;  ///< of a block, as it is launched
  std::size_t dynamic_shared;
  std::size_t shared_per_thread;  ///< of a kernel whose dynamic shared memory grows with its block, else 0
};

inline std::vector<NamedKernel>& named_kernels() {
  static std::vector<NamedKernel> kernels;
  return kernels;
}

/// The one of this name, or an error of `op`.
const NamedKernel& named_kernel(const char* op, const std::string& name);

/// At namespace scope beside a kernel: const NameKernel named("sgemm 01_naive", kernel, 1024);
struct NameKernel {
  template <class Kernel>
  NameKernel(const char* name, Kernel* kernel, int threads, std::size_t dynamic_shared = 0, std::size_t shared_per_thread = 0) {
    named_kernels().push_back({name, reinterpret_cast<const void*>(kernel), threads, dynamic_shared, shared_per_thread});
  }
};

}  // namespace xgemm::lab
