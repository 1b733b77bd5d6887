#include <cuda_runtime.h>

#include <atomic>

#include "device/counters.h"

namespace xgemm {

namespace {

constexpr std::size_t kCaptured = 1 << 16;
constexpr int kMaxDevices = 64;
__device__ unsigned captured_counters[kCaptured];  // zero from the start, and again after each use
std::atomic<char*> captured_base[kMaxDevices];
std::atomic<std::size_t> captured_used[kMaxDevices];

}  // namespace

void prepare_captures(int device) {
  void* base = nullptr;
  if (device < kMaxDevices && captured_base[device].load(std::memory_order_acquire) == nullptr &&
      cudaGetSymbolAddress(&base, captured_counters) == cudaSuccess)
    captured_base[device].store(static_cast<char*>(base), std::memory_order_release);
}

void* counters_for_capture(int device, std::size_t bytes) {
  char* const base = device < kMaxDevices ? captured_base[device].load(std::memory_order_acquire) : nullptr;
  if (base == nullptr || captured_used[device].load() + bytes > sizeof(captured_counters)) return nullptr;
  const std::size_t at = captured_used[device].fetch_add(bytes);
  return at + bytes <= sizeof(captured_counters) ? base + at : nullptr;
}

}  // namespace xgemm
