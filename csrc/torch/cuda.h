// Where a CUDA op runs: the tensor's device, torch's current stream on it, and the launch check.
#pragma once
#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "device/properties.h"
#include "torch/tensor.h"

namespace xgemm {

/// Makes the device of `v` current for its lifetime and looks up torch's stream there.
class CudaScope {
 public:
  explicit CudaScope(const TensorView& v);
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

  cudaStream_t stream() const { return stream_; }
  const DeviceProperties& properties() const { return *properties_; }
  /// Is the stream captured into a graph? Then memory that outlives the call must be the graph's own: it may be replayed
  /// anywhere.
  bool captured() const;
  /// Memory that belongs to this stream, which is not captured, and outlives the call, for a kernel's counters and partial
  /// results: kernels of one stream follow each other. It starts as zeros and whoever uses its first kStandingCounterBytes leaves
  /// zeros there, which saves a memset a call.
  void* standing_workspace() const;
  static constexpr std::size_t kStandingCounterBytes = 1 << 16, kStandingBytes = 1 << 20;
  /// Turns a failed launch into one line; to be called after every launch.
  void check_launch() const;

 private:
  const char* op_;
  TensorView view_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  cudaStream_t stream_ = nullptr;
  const DeviceProperties* properties_ = nullptr;
};

}  // namespace xgemm
