#include <atomic>

#include "softmax/kernels/instantiate.cuh"
#include "softmax/kernels/shared.cuh"

namespace xgemm::softmax {

namespace {

/// Lets a kernel have all of the SM's shared memory and 16 blocks a cluster: once a kernel and device.
template <auto kKernel>
void allow_all() {
  static std::atomic<std::uint64_t> done = 0;  // a bit a device
  int device = 0, limit = 0;
  cudaGetDevice(&device);
  const std::uint64_t bit = std::uint64_t{1} << (device % 64);
  if (done.load(std::memory_order_relaxed) & bit) return;
  cudaFuncAttributes attributes{};
  cudaFuncGetAttributes(&attributes, kKernel);
  cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, limit - static_cast<int>(attributes.sharedSizeBytes));
  cudaFuncSetAttribute(kKernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  done.fetch_or(bit, std::memory_order_relaxed);
}

}  // namespace

void launch_shared(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const auto go = [&]<int kThreads>() {
      allow_all<softmax_shared<T, O, kThreads>>();
      launch_clusters<T, O>(softmax_shared<T, O, kThreads>, plan, rows_of(plan), static_cast<std::size_t>(plan.chunk) * 16 + 32, in,
                            out, stream);
    };
    if constexpr (std::is_same_v<T, float> || (std::is_same_v<T, bf16> && std::is_same_v<O, bf16>)) {
      if (plan.threads == 128) return go.template operator()<128>();
      if (plan.threads == 512) return go.template operator()<512>();
    }
    go.template operator()<256>();
  });
}

}  // namespace xgemm::softmax
