// Launches with attributes that <<<>>> cannot express, and one-time attributes of kernels.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace xgemm {

/// May kernels be launched early (programmatic dependent launch) on the current device? Only code compiled for sm_90 waits for
/// the kernel before it (ptx/grid.cuh); PTX of an older architecture on a newer GPU does not. (properties.cpp)
bool may_launch_early();

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory per block
  unsigned cluster = 1;          ///< blocks per cluster, along x
  bool early = false;            ///< may begin while the previous kernel ends (ptx/grid.cuh)
};

/// Of a kernel that calls grid_wait() before it touches memory.
inline Grid early_grid(std::int64_t blocks, std::int64_t threads, int cluster = 1) {
  return {.blocks = dim3(static_cast<unsigned>(blocks)),
          .threads = dim3(static_cast<unsigned>(threads)),
          .cluster = static_cast<unsigned>(cluster),
          .early = true};
}

template <class... Parameters, class... Arguments>
void enqueue(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  if (grid.early && may_launch_early()) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& attribute = attributes[config.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {grid.cluster, 1, 1};
  }
  cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}

/// Calls allow(device), which sets attributes of kKernel, until it has returned true once on the current device (the driver
/// keeps them). Concurrent threads may both call it.
template <auto kKernel, class Allow>
bool once_a_device(Allow&& allow) {
  static std::uint64_t done = 0;  // one bit per device; <atomic> would add a second to every .cu's compilation
  int device = 0;
  cudaGetDevice(&device);
  const std::uint64_t bit = device < 64 ? std::uint64_t{1} << device : 0;
  if (__atomic_load_n(&done, __ATOMIC_RELAXED) & bit) return true;
  if (!allow(device)) return false;
  __atomic_fetch_or(&done, bit, __ATOMIC_RELAXED);
  return true;
}

/// Allows kKernel kBytes of dynamic shared memory; without it a kernel has 48 KiB.
template <auto kKernel, int kBytes>
bool allow_shared() {
  return once_a_device<kKernel>(
      [](int) { return cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes) == cudaSuccess; });
}

/// Allows a kernel all of the SM's shared memory and clusters of up to 16 CTAs.
template <auto kKernel>
void allow_all_shared() {
  once_a_device<kKernel>([](int device) {
    cudaFuncAttributes attributes{};
    int limit = 0;
    cudaFuncGetAttributes(&attributes, kKernel);
    cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         limit - static_cast<int>(attributes.sharedSizeBytes));
    cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    int clusters = 0;
    cudaDeviceGetAttribute(&clusters, cudaDevAttrClusterLaunch, device);
    if (clusters != 0) cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return true;
  });
}

/// enqueue() with kBytes of dynamic shared memory, or fewer if `grid` says so. False: too much for the device, not launched.
template <auto kKernel, int kBytes, class... Arguments>
bool enqueue_with_shared(Grid grid, cudaStream_t stream, Arguments&&... arguments) {
  if (!allow_shared<kKernel, kBytes>()) return false;
  if (grid.shared_bytes == 0) grid.shared_bytes = static_cast<std::size_t>(kBytes);
  enqueue(kKernel, grid, stream, std::forward<Arguments>(arguments)...);
  return true;
}

}  // namespace xgemm
