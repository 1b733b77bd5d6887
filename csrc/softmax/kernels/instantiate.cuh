// Host dispatch over the six pairs of input and output dtype: the four floating ones, and 16 bits in with fp32 out.
#pragma once
#include <stdexcept>

#include "device/numeric.cuh"
#include "softmax/launch.h"

namespace xgemm::softmax {

/// f(Type<T>, Type<O>).
template <class F>
void dispatch(const Plan& plan, F&& f) {
  dispatch_floating(plan.in, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) == 2)
      if (plan.out == DType::f32) return f(Type<T>{}, Type<float>{});
    f(Type<T>{}, Type<T>{});
  });
}

/// Launches `kernel` with clusters of plan.cluster blocks.
template <class T, class O, class Arguments>
void launch_clusters(void (*kernel)(Arguments, const T*, O*), const Plan& plan, const Arguments& arguments, std::size_t shared,
                     const void* in, void* out, cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(plan.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = plan.cluster > 1 ? 1 : 0;
  // More than 8 blocks is a promise of this GPU, not of every one: allowed a kernel and device at a time, kept by the driver.
  if (plan.cluster > 8) cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchKernelEx(&config, kernel, arguments, static_cast<const T*>(in), static_cast<O*>(out));
}

}  // namespace xgemm::softmax
