// Counters in device memory for kernels whose blocks meet at the end.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

namespace xgemm {

/// Zeroed counters that no other call has, for one that `stream` captures into a graph: it saves the graph a memset. They come
/// back once the graph, and whatever was instantiated from it, is gone. nullptr where a device's 64K are all in use, or while
/// none are known: `prepare_captures` looks them up, outside captures only.
void* counters_for_capture(int device, std::size_t bytes, cudaStream_t stream);
void prepare_captures(int device);

}  // namespace xgemm
