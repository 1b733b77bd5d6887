#include "device/properties.h"

#include <cudaTypedefs.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "device/driver.h"
#include "device/environment.h"
#include "device/launch.h"

namespace xgemm {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kPortableCluster = 8;

/// SMs of a green context, and how many of them are guaranteed to be in one GPC.
struct SmPartition {
  int sms = 0, together = 0;
};

/// Of the green context that `stream` belongs to; no SMs if there is none.
SmPartition partition_of(CUstream_st* stream) {
  static const auto context_of = driver_function<PFN_cuStreamGetGreenCtx_v12040>("cuStreamGetGreenCtx", 12040);
  static const auto resource_of = driver_function<PFN_cuGreenCtxGetDevResource_v12040>("cuGreenCtxGetDevResource", 12040);
  CUgreenCtx context = nullptr;
  CUdevResource resource{};
  if (context_of == nullptr || resource_of == nullptr || context_of(stream, &context) != CUDA_SUCCESS || context == nullptr ||
      resource_of(context, &resource, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS)
    return {};
  // Toolkits and drivers of release 12 do not tell; they divide a GPU by the SMs of a portable cluster.
  const unsigned together = [](const auto& sm) -> unsigned {
    if constexpr (requires { sm.smCoscheduledAlignment; })
      return sm.smCoscheduledAlignment;
    else
      return 0;
  }(resource.sm);
  return {static_cast<int>(resource.sm.smCount), together == 0 ? kPortableCluster : static_cast<int>(together)};
}

/// A GPU of compute capability 9.0 that cannot run Hopper's kernels.
void without_hopper_kernels(DeviceProperties& gpu) { gpu.major = 8, gpu.minor = 9; }

/// What XGEMM_ARCH may name, with the shared memory of a block and of an SM in KiB (CUDA C++ Programming Guide).
struct Architecture {
  int major, minor;
  std::size_t block_kib, sm_kib;
};
constexpr Architecture kArchitectures[] = {{8, 0, 163, 164}, {8, 6, 99, 100}, {8, 9, 99, 100}, {12, 0, 99, 100}};

/// The one that XGEMM_ARCH names, read once; null if none.
const Architecture* wanted_architecture() {
  static const auto* const wanted = std::find_if(std::begin(kArchitectures), std::end(kArchitectures), [](const Architecture& x) {
    return environment("XGEMM_ARCH") == std::to_string(10 * x.major + x.minor);
  });
  return wanted == std::end(kArchitectures) ? nullptr : wanted;
}

}  // namespace

bool is_architecture_known() {
  static const bool known = environment("XGEMM_ARCH").empty() || wanted_architecture() != nullptr;  // asked at every call
  return known;
}

const DeviceProperties& device_properties(int index) {
  static std::array<DeviceProperties, kMaxDevices + 1> cache;
  static std::array<std::once_flag, kMaxDevices> once;
  if (index < 0 || index >= kMaxDevices) return cache[kMaxDevices];
  std::call_once(once[static_cast<std::size_t>(index)], [index] {
    const auto read = [index](cudaDeviceAttr attribute) {
      int value = 0;
      cudaDeviceGetAttribute(&value, attribute, index);
      return value;
    };
    DeviceProperties& gpu = cache[static_cast<std::size_t>(index)];
    gpu = {
        .major = read(cudaDevAttrComputeCapabilityMajor),
        .minor = read(cudaDevAttrComputeCapabilityMinor),
        .sm_count = read(cudaDevAttrMultiProcessorCount),
        .smem_per_block = static_cast<std::size_t>(read(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
        .smem_per_sm = static_cast<std::size_t>(read(cudaDevAttrMaxSharedMemoryPerMultiprocessor)),
        .clock_hz = 1e3 * read(cudaDevAttrClockRate),
        .memory_bytes_per_second = 2 * 1e3 * read(cudaDevAttrMemoryClockRate) * read(cudaDevAttrGlobalMemoryBusWidth) / 8,
    };
#ifndef XGEMM_HOPPER_CODE
    if (gpu.major == 9) without_hopper_kernels(gpu);
#endif
    if (const Architecture* const wanted = wanted_architecture(); gpu.major == 9 && wanted != nullptr) {
      gpu.major = wanted->major, gpu.minor = wanted->minor;
      gpu.smem_per_block = 1024 * wanted->block_kib, gpu.smem_per_sm = 1024 * wanted->sm_kib;
    }
  });
  return cache[static_cast<std::size_t>(index)];
}

const DeviceProperties& device_properties(int index, CUstream_st* stream) {
  const DeviceProperties& whole = device_properties(index);
  const auto [sms, together] = partition_of(stream);
  if (sms == 0) return whole;
  static std::mutex mutex;
  static auto& partitions = *new std::map<std::tuple<int, int, int>, DeviceProperties>;
  const std::scoped_lock lock(mutex);
  const auto [at, fresh] = partitions.try_emplace({index, sms, together}, whole);
  DeviceProperties& part = at->second;
  if (!fresh) return part;
  part.sm_count = sms;
  if (together < part.max_cluster) part.max_cluster = kPortableCluster;
  if (part.major == 9 && together < kPortableCluster) without_hopper_kernels(part);
  return part;
}

bool may_launch_early() {
  int device = 0;
  return cudaGetDevice(&device) == cudaSuccess && device_properties(device).major == 9;
}

}  // namespace xgemm
