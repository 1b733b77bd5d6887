// The lab's kernels by name, for xgemm_lab::kernel_attributes: registers, shared memory, resident blocks; and by the numbers that
// an op is called with, to be launched. (Without <string> and <vector>, which would cost each of the lab's files two seconds.)
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

// Kernels of Hopper are compiled for sm_90a alone; their ops refuse other GPUs before a launch.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define XGEMM_LAB_HOPPER 1
#endif

namespace xgemm::lab {

/// Its address stands for the type of a kernel.
template <class Kernel>
inline constexpr char kTypeOf{};

struct NamedKernel {
  const char* name;
  const void* kernel;
  const char* type;
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
      : NamedKernel{
            name,         reinterpret_cast<const void*>(kernel), &kTypeOf<Kernel>, threads, dynamic_shared, shared_per_thread,
            named_kernels} {
    named_kernels = this;
  }
  NameKernel(const NameKernel&);  // defined nowhere; were it deleted, GCC would make what a function returns on the stack first
  NameKernel& operator=(const NameKernel&) = delete;
};

/// A step of a ladder by its number and, where several kernels are one step, the size that each is for.
struct StepId {
  int number, size = 0;
  bool operator==(const StepId&) const = default;
};

/// A step, at namespace scope beside its kernel: `launch` is what an op calls.
template <class Launch>
struct StepOf : NameKernel {
  StepId id;
  Launch launch;
  const StepOf* next_step;
  static inline const StepOf* steps = nullptr;

  template <class Kernel>
  StepOf(StepId id, const char* name, Kernel* kernel, int threads, Launch launch, std::size_t dynamic_shared = 0)
      : NameKernel(name, kernel, threads, dynamic_shared), id(id), launch(launch), next_step(steps) {
    steps = this;
  }
};

/// The step of this id; null if there is none.
template <class Step>
const Step* find_step(StepId id) {
  const Step* found = Step::steps;
  while (found && found->id != id) found = found->next_step;
  return found;
}

}  // namespace xgemm::lab
