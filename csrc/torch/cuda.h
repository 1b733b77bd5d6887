// Where a CUDA op runs: the tensor's device, torch's current stream on it, and the launch check.
#pragma once
#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "device/properties.h"
#include "torch/tensor.h"

namespace xgemm {

/// Where the blocks of a kernel that share a result meet.
struct MeetingPlace {
  void* counters = nullptr;
  void* partials = nullptr;
  std::optional<Tensor> owned;  ///< given back to torch's allocator on return, and used again in the stream's order
};

/// Makes the device of `v` current for its lifetime and looks up torch's stream there.
class CudaScope {
 public:
  explicit CudaScope(const TensorView& v);
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

  cudaStream_t stream() const { return stream_; }
  const DeviceProperties& properties() const { return *properties_; }
  /// For one kernel on this stream: `counter_bytes` of zeros, which it leaves zeros, and `partial_bytes` of anything. Null where
  /// no bytes are asked for.
  MeetingPlace meeting_place(std::size_t counter_bytes, std::size_t partial_bytes) const;
  /// Turns a failed launch into one line; to be called after every launch.
  void check_launch() const;

 private:
  /// Memory that belongs to this stream, which is not captured, and outlives the call: kernels of one stream follow each other.
  /// It starts as zeros and whoever uses its first kStandingCounterBytes leaves zeros there, which saves a memset a call.
  char* standing_workspace() const;
  /// Is the stream captured into a graph? Then memory that outlives the call must be the graph's own: it may be replayed
  /// anywhere.
  bool captured() const;
  static constexpr std::size_t kStandingCounterBytes = 1 << 16, kStandingBytes = 1 << 20;

  const char* op_;
  TensorView view_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  cudaStream_t stream_ = nullptr;
  const DeviceProperties* properties_ = nullptr;
};

}  // namespace xgemm
