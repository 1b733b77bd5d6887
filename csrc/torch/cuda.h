// Where a CUDA op runs: the tensor's device, torch's current stream on it, and the launch check.
#pragma once
#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "device/properties.h"
#include "torch/tensor.h"

namespace xgemm {

/// Memory through which the CTAs of a kernel combine a result that they share.
struct MeetingPlace {
  void* counters = nullptr;
  void* partials = nullptr;
  std::optional<Tensor> owned;  ///< returned to torch's allocator with this object; the stream orders its reuse
};

/// Makes the device of `v` current for its lifetime and looks up torch's stream there.
class CudaScope {
 public:
  explicit CudaScope(const TensorView& v);
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

  cudaStream_t stream() const { return stream_; }
  const DeviceProperties& properties() const { return *properties_; }
  /// For one kernel on this stream: zeros, which the kernel must leave zero, and uninitialised memory. Null for zero bytes.
  MeetingPlace meeting_place(std::int64_t counter_bytes, std::int64_t partial_bytes) const;
  /// Throws a one-line error if the launch failed. Called after every launch.
  void check_launch() const;

 private:
  /// Memory of this stream (which is not being captured) that outlives the call; kernels of one stream run one after another.
  /// Its first kStandingCounterBytes start as zeros and every kernel leaves zeros there, which saves a memset per call. Null if
  /// the GPU has none left, on part of a GPU, and for each stream after the device's first kStandingStreams.
  char* standing_workspace() const;
  static constexpr int kStandingCounterBytes = 1 << 16, kStandingBytes = 1 << 20, kStandingStreams = 32;

  const char* op_;
  TensorView view_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  cudaStream_t stream_ = nullptr;
  const DeviceProperties* properties_ = nullptr;
};

}  // namespace xgemm
