// Programmatic dependent launch (sm_90): a kernel launched with that attribute may start while the previous kernel on the stream
// still runs, and must wait before it touches memory. No effect on older architectures. PTX ISA, "griddepcontrol".
#pragma once

namespace xgemm::ptx {

/// Waits until all previous kernels on the stream have finished and their writes are visible. Every thread calls it.
__device__ __forceinline__ void grid_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The same; read through the result: the compiler may move loads through another const __restrict__ pointer before the wait.
template <class T>
__device__ __forceinline__ T* grid_wait(T* p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" : "+l"(p)::"memory");
#endif
  return p;
}

/// Allows the next kernel on the stream to start as soon as resources are free.
__device__ __forceinline__ void grid_release() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace xgemm::ptx
