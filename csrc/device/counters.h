// Counters in device memory for kernels whose CTAs combine their results at the end.
#pragma once
#include <cuda_runtime.h>

#include <cstddef>

namespace xgemm {

/// Zeroed counters for a call that `stream` captures into a graph. No other call uses them, so the graph needs no memset. They
/// are given back when the graph and everything instantiated from it are destroyed. Returns nullptr if all 64K counters of the
/// device are in use, or if `prepare_captures`, which works only outside captures, has not run for it.
void* counters_for_capture(int device, std::size_t bytes, cudaStream_t stream);
void prepare_captures(int device);

}  // namespace xgemm
