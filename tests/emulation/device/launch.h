// The emulator's csrc/device/launch.h.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <utility>

#include "emulation.h"

template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*)(Parameters...), cudaFuncAttribute, int) {
  return cudaSuccess;
}

namespace xgemm {

struct Grid {
  dim3 blocks, threads;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;
  bool early = false;
};

inline Grid early_grid(std::int64_t blocks, std::int64_t threads, int cluster = 1) {
  return {.blocks = static_cast<unsigned>(blocks),
          .threads = static_cast<unsigned>(threads),
          .cluster = static_cast<unsigned>(cluster),
          .early = true};
}

template <class... Parameters, class... Arguments>
void enqueue(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t, Arguments&&... arguments) {
  emulation::Options options = emulation::launch_options();
  options.cluster = grid.cluster;
  emulation::launch(kernel, grid.blocks, grid.threads, grid.shared_bytes, options, std::forward<Arguments>(arguments)...);
}

template <auto kKernel, class Allow>
bool once_a_device(Allow&& allow) {
  return allow(0);
}

template <auto kKernel, int kBytes>
bool allow_shared() {
  return kBytes <= 227 * 1024;
}

template <auto kKernel>
void allow_all_shared() {}

template <auto kKernel, int kBytes, class... Arguments>
bool enqueue_with_shared(Grid grid, cudaStream_t stream, Arguments&&... arguments) {
  if (!allow_shared<kKernel, kBytes>()) return false;
  grid.shared_bytes = kBytes;
  enqueue(kKernel, grid, stream, std::forward<Arguments>(arguments)...);
  return true;
}

}  // namespace xgemm
