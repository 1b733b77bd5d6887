// Properties of a GPU that plans depend on, read once per device.
#pragma once
#include <cstddef>

namespace xgemm {

struct DeviceProperties {
  int major = 0, minor = 0;
  int sm_count = 0;
  int max_threads_per_sm = 0;
  std::size_t l2_bytes = 0;
  std::size_t smem_per_block = 0;  ///< largest dynamic shared memory a block may ask for (opt-in limit)
  std::size_t smem_per_sm = 0;
};

/// Properties of device `index`, cached; all zero if the device cannot be read.
const DeviceProperties& device_properties(int index);

}  // namespace xgemm
