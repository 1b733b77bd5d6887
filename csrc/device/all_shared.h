// One-time attributes of kernels that use much shared memory.
#pragma once
#include "device/launch.h"

namespace xgemm {

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

}  // namespace xgemm
