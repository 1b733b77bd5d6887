#include "device/properties.h"

#include <cuda_runtime.h>

#include <array>
#include <mutex>

namespace xgemm {

const DeviceProperties& device_properties(int index) {
  constexpr int kMaxDevices = 64;
  static std::array<DeviceProperties, kMaxDevices + 1> cache;
  static std::array<std::once_flag, kMaxDevices> once;
  if (index < 0 || index >= kMaxDevices) return cache[kMaxDevices];
  std::call_once(once[static_cast<std::size_t>(index)], [index] {
    const auto read = [index](cudaDeviceAttr attribute) {
      int value = 0;
      cudaDeviceGetAttribute(&value, attribute, index);
      return value;
    };
    cache[static_cast<std::size_t>(index)] = {
        .major = read(cudaDevAttrComputeCapabilityMajor),
        .minor = read(cudaDevAttrComputeCapabilityMinor),
        .sm_count = read(cudaDevAttrMultiProcessorCount),
        .max_threads_per_sm = read(cudaDevAttrMaxThreadsPerMultiProcessor),
        .l2_bytes = static_cast<std::size_t>(read(cudaDevAttrL2CacheSize)),
        .smem_per_block = static_cast<std::size_t>(read(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
        .smem_per_sm = static_cast<std::size_t>(read(cudaDevAttrMaxSharedMemoryPerMultiprocessor)),
        .memory_bytes_per_second = 2 * 1e3 * read(cudaDevAttrMemoryClockRate) * read(cudaDevAttrGlobalMemoryBusWidth) / 8,
    };
#ifndef XGEMM_HOPPER_CODE
    DeviceProperties& gpu = cache[static_cast<std::size_t>(index)];
    if (gpu.major == 9) gpu.major = 8, gpu.minor = 9;
#endif
  });
  return cache[static_cast<std::size_t>(index)];
}

bool may_launch_early() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && device_properties(device).major == 9;
}

}  // namespace xgemm
