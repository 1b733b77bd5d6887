// Functions of the CUDA driver through the runtime, so that the library does not link libcuda.
#pragma once
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

}  // namespace xgemm
