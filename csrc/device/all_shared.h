// What kernels with much shared memory are allowed once and for all.
#pragma once
#include "device/launch.h"

namespace xgemm {

/// Lets a kernel have all of the SM's shared memory and 16 blocks a cluster.
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
    cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return true;
  });
}

}  // namespace xgemm
