#include <cuda_runtime.h>

#include <atomic>
#include <bitset>
#include <mutex>

#include "device/counters.h"

namespace xgemm {

namespace {

constexpr int kMaxDevices = 64;
constexpr std::size_t kBlockBytes = 256, kBlocks = 1024;
__device__ unsigned captured_counters[kBlocks * kBlockBytes / sizeof(unsigned)];  // zeros, and zeros again after each use

struct Pool {
  std::mutex mutex;
  std::atomic<char*> base = nullptr;
  std::bitset<kBlocks> used;

  /// The first of `count` free blocks in a row, now used; kBlocks if there are none.
  std::size_t take(std::size_t count) {
    const std::scoped_lock lock(mutex);
    for (std::size_t at = 0, free = 0; at < kBlocks; at++) {
      free = used[at] ? 0 : free + 1;
      if (free == count) {
        const std::size_t first = at + 1 - count;
        for (std::size_t i = first; i <= at; i++) used.set(i);
        return first;
      }
    }
    return kBlocks;
  }
};

/// Never destroyed, because graphs may be destroyed after this library's static objects.
Pool* pool_of(int device) {
  static Pool* const pools = new Pool[kMaxDevices];
  return device < kMaxDevices ? pools + device : nullptr;
}

/// Blocks that a graph holds. CUDA calls `give_back` from its own thread when the graph is destroyed and no launch of it runs.
struct Loan {
  Pool* pool;
  std::size_t first, count;

  static void give_back(void* loan) {
    auto* const l = static_cast<Loan*>(loan);
    {
      const std::scoped_lock lock(l->pool->mutex);
      for (std::size_t i = 0; i < l->count; i++) l->pool->used.reset(l->first + i);
    }
    delete l;
  }
};

}  // namespace

void prepare_captures(int device) {
  Pool* const pool = pool_of(device);
  void* base = nullptr;
  if (pool != nullptr && pool->base == nullptr && cudaGetSymbolAddress(&base, captured_counters) == cudaSuccess)
    pool->base = static_cast<char*>(base);
}

void* counters_for_capture(int device, std::size_t bytes, cudaStream_t stream) {
  Pool* const pool = pool_of(device);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  if (pool == nullptr || pool->base == nullptr) return nullptr;
  if (cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph) != cudaSuccess) cudaGetLastError();
  if (graph == nullptr) return nullptr;
  const std::size_t count = (bytes + kBlockBytes - 1) / kBlockBytes, first = pool->take(count);
  if (first == kBlocks) return nullptr;
  auto* const loan = new Loan{pool, first, count};
  cudaUserObject_t object = nullptr;
  if (cudaUserObjectCreate(&object, loan, &Loan::give_back, 1, cudaUserObjectNoDestructorSync) != cudaSuccess) {
    cudaGetLastError();
    Loan::give_back(loan);
    return nullptr;
  }
  if (cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove) != cudaSuccess) {
    cudaGetLastError();
    cudaUserObjectRelease(object);  // gives the blocks back
    return nullptr;
  }
  return pool->base + first * kBlockBytes;
}

}  // namespace xgemm
