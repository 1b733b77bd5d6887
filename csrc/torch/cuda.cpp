#include "torch/cuda.h"

#include <map>
#include <mutex>

#include "device/counters.h"
#include "device/driver.h"
#include "device/environment.h"
#include "device/integer.h"

// Exists in libtorch_cuda only; weak, so that this library also loads with a torch without CUDA.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device_index, void** stream);

namespace xgemm {

CudaScope::CudaScope(const TensorView& v) : op_(v.op), view_(v) {
  check(v.cuda, op_, "expected ", v.name, " on cuda, got ", device_name(v));
  check(aoti_torch_get_current_cuda_stream != nullptr, op_, "this torch has no CUDA support, got a tensor on ", device_name(v));
  // torch's guard restores torch's current device; the CUDA runtime that is linked into this library has its own current
  // device. With one GPU neither can have another, and a thread does this once.
  static const bool one_gpu = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count == 1;
  }();
  thread_local bool current = false;
  if (!one_gpu || !current) {
    if (torch::stable::accelerator::getCurrentDeviceIndex() != v.device_index) guard_.emplace(v.device_index);
    int now = -1;  // not set again: that would leave a green context
    if (!has_context() || cudaGetDevice(&now) != cudaSuccess || now != v.device_index)
      if (const cudaError_t e = cudaSetDevice(v.device_index); e != cudaSuccess)
        fail(op_, "cannot use ", device_name(v), ": ", cudaGetErrorString(e));
    check(is_architecture_known(), op_, "expected XGEMM_ARCH to be 80, 86, 89 or 120, got ", environment("XGEMM_ARCH"));
    current = true;
  }
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(v.device_index, &stream));
  stream_ = static_cast<cudaStream_t>(stream);
  properties_ = &device_properties(v.device_index, stream_);
}

char* CudaScope::standing_workspace() const {
  // The default stream of a green context may have the id of another's.
  if (properties_ != &device_properties(view_.device_index)) return nullptr;
  unsigned long long id = 0;  // unique while the process lives; a stream's handle may be reused
  if (cudaStreamGetId(stream_, &id) != cudaSuccess) fail(op_, "cannot identify the stream");
  static std::mutex mutex;
  // Of each device, by stream. Neither a map nor the memory is ever freed: a stream that has gone may still run kernels.
  static auto& devices = *new std::map<int, std::map<unsigned long long, char*>>;
  const std::scoped_lock lock(mutex);
  auto& standing = devices[view_.device_index];
  if (const auto found = standing.find(id); found != standing.end()) return found->second;
  if (std::ssize(standing) >= kStandingStreams) return nullptr;
  // torch's allocator may be filling a pool that must not keep what outlives the call: while torch.compile warms up a CUDA graph,
  // which then refuses the pool, or under torch.cuda.use_mem_pool.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // another thread may be capturing
  cudaThreadExchangeStreamCaptureMode(&mode);
  void* fresh = nullptr;
  const bool allocated = cudaMalloc(&fresh, kStandingBytes) == cudaSuccess;
  cudaThreadExchangeStreamCaptureMode(&mode);
  if (!allocated) {
    cudaGetLastError();  // or the launch check would find it
    return nullptr;
  }
  if (cudaMemsetAsync(fresh, 0, kStandingCounterBytes, stream_) != cudaSuccess) fail(op_, "cannot clear memory");
  return standing[id] = static_cast<char*>(fresh);  // only once it is cleared
}

MeetingPlace CudaScope::meeting_place(std::int64_t counter_bytes, std::int64_t partial_bytes) const {
  MeetingPlace place;
  if (counter_bytes + partial_bytes == 0) return place;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const bool known = cudaStreamIsCapturing(stream_, &capture) == cudaSuccess;
  if (!known) cudaGetLastError();  // asking the default stream while another one is captured is an error
  // What outlives a captured call must belong to the graph, which may be replayed on any stream.
  if (!known || capture != cudaStreamCaptureStatusNone) {
    if (counter_bytes > 0) place.counters = counters_for_capture(view_.device_index, counter_bytes, stream_);
  } else if (counter_bytes <= kStandingCounterBytes) {
    prepare_captures(view_.device_index);
    if (char* const standing = standing_workspace()) {
      place.counters = standing;
      if (partial_bytes <= kStandingBytes - kStandingCounterBytes) place.partials = standing + kStandingCounterBytes;
    }
  }
  const std::int64_t own_counters = place.counters ? 0 : round_up(counter_bytes, 256);
  if (!place.partials && own_counters + partial_bytes > 0) {
    place.owned = workspace(own_counters + partial_bytes, view_);
    place.partials = static_cast<char*>(place.owned->data_ptr()) + own_counters;
    if (own_counters > 0) {
      place.counters = place.owned->data_ptr();
      if (cudaMemsetAsync(place.counters, 0, counter_bytes, stream_) != cudaSuccess) fail(op_, "cannot clear memory");
    }
  }
  return place;
}

void CudaScope::check_launch() const {
  const cudaError_t e = cudaGetLastError();
  if (e == cudaSuccess) [[likely]]
    return;
  if (e == cudaErrorNoKernelImageForDevice || e == cudaErrorInvalidDeviceFunction) {
    int major = 0, minor = 0;  // of the GPU itself
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, view_.device_index);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, view_.device_index);
    fail(op_, "libxgemm.so holds no kernel image for this GPU (sm_", major, minor,
         "); rebuild it with TORCH_CUDA_ARCH_LIST=", major, ".", minor, major == 9 ? "a" : "");
  }
  fail(op_, "CUDA launch failed: ", cudaGetErrorString(e));
}

}  // namespace xgemm
