// Counters in device memory for kernels whose blocks meet at the end.
#pragma once
#include <cstddef>

namespace xgemm {

/// Zeroed counters that no other call has been given, for one that is captured into a graph: it saves the graph a memset. nullptr
/// once a device's 64K are given away, or while none are known: `prepare_captures` looks them up, outside captures only.
void* counters_for_capture(int device, std::size_t bytes);
void prepare_captures(int device);

}  // namespace xgemm
