// Properties of a GPU that plans depend on, read once per device.
#pragma once
#include <cstddef>

struct CUstream_st;  // cudaStream_t points to it; plans are compiled without CUDA's headers, too

namespace xgemm {

struct DeviceProperties {
  /// The compute capability whose kernels the library may launch: the GPU's; for one of 9.0 also 8.9 if the library has no
  /// machine code for it (TORCH_CUDA_ARCH_LIST), where it runs PTX of an older architecture in which Hopper's kernels are empty,
  /// or what XGEMM_ARCH names (80, 86, 89, 120), with that architecture's shared memory.
  int major = 0, minor = 0;
  int sm_count = 0;
  std::size_t smem_per_block = 0;  ///< largest dynamic shared memory of a block (opt-in limit)
  std::size_t smem_per_sm = 0;
  double clock_hz = 0;                 ///< the highest; 0 if unknown
  double memory_bytes_per_second = 0;  ///< by its clock and the width of its bus; 0 if unknown
  int max_cluster = 16;                ///< most CTAs of a cluster, if the GPU has clusters (9.0)
};

bool is_architecture_known();  ///< Is XGEMM_ARCH unset, or one of those?

/// Properties of device `index`, cached; all zero if the device cannot be read.
const DeviceProperties& device_properties(int index);
/// Of the SMs of device `index` on which `stream` runs kernels: those of a green context if the stream belongs to one. (Under MPS
/// and on a MIG partition the driver's attributes are already the process's own.) The object lives as long as the process.
const DeviceProperties& device_properties(int index, CUstream_st* stream);

}  // namespace xgemm
