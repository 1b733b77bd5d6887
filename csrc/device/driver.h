// Functions of the CUDA driver through the runtime, so that the library does not link libcuda.
#pragma once
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

namespace xgemm {

/// The driver's function `name` as of release `version` (12040: 12.4), of type F; null if the driver is older.
template <class F>
F driver_function(const char* name, unsigned version) {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t e = cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &result);
  return reinterpret_cast<F>(e == cudaSuccess && result == cudaDriverEntryPointSuccess ? entry : nullptr);
}

/// Is a context current on this thread? A thread that has not called CUDA has none, and the driver's functions need one.
inline bool has_context() {
  static const auto current = driver_function<PFN_cuCtxGetCurrent_v4000>("cuCtxGetCurrent", 4000);
  CUcontext context = nullptr;
  return current != nullptr && current(&context) == CUDA_SUCCESS && context != nullptr;
}

}  // namespace xgemm
