// Programmatic dependent launch (sm_90): a kernel launched with that attribute may start while the one before it on the stream
// still runs, and must wait before it touches memory. Nothing on older architectures. PTX ISA, "griddepcontrol".
#pragma once

namespace xgemm::ptx {

/// Until all kernels before this one on the stream have finished and their writes are visible. Every thread calls it.
__device__ __forceinline__ void grid_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The same. Nobody reads through the result before: through a pointer to data that a kernel never writes (const __restrict__)
/// the compiler reads ahead of the wait.
template <class T>
__device__ __forceinline__ T* grid_wait(T* p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : "+l"(p)::"memory");
#endif
  return p;
}

/// The next kernel on the stream may start, as far as room allows.
__device__ __forceinline__ void grid_release() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace xgemm::ptx
