// The lab's kernels by name, for xgemm_lab::kernel_attributes: registers, shared memory, resident blocks. (Without <string> and
// <vector>, which would cost each of the lab's files two seconds.)
#pragma once
#include <cstddef>

namespace xgemm::lab {

struct NamedKernel {
  const char* name;
  const void* kernel;
  int threads;  ///< of a block, as it is launched
  std::size_t dynamic_shared;
  std::size_t shared_per_thread;  ///< of a kernel whose dynamic shared memory grows with its block, else 0
  const NamedKernel* next;        ///< of all
};

inline const NamedKernel* named_kernels = nullptr;

/// The one of this name, or an error of `op`.
const NamedKernel& named_kernel(const char* op, const char* name);

/// At namespace scope beside a kernel: const NameKernel named("sgemm 01_naive", kernel, 1024);
struct NameKernel : NamedKernel {
  template <class Kernel>
  NameKernel(const char* name, Kernel* kernel, int threads, std::size_t dynamic_shared = 0, std::size_t shared_per_thread = 0)
      : NamedKernel{name, reinterpret_cast<const void*>(kernel), threads, dynamic_shared, shared_per_thread, named_kernels} {
    named_kernels = this;
  }
  NameKernel(const NameKernel&) = delete;
  NameKernel& operator=(const NameKernel&) = delete;
};

}  // namespace xgemm::lab
