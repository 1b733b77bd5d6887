// The reduction ladder: the sum of n numbers, one file a version.
// Contract of v0 to v7: one pass writes one partial sum a block; the driver runs the same kernel again over the partials until
// one number is left, so each version also finishes itself. v8 and v9 need one pass. Any n from 1. No atomics on sums: the order
// of additions depends on n and the number of SMs only, so the bits repeat. Floor: 4 n bytes read, n - 1 additions, 0.25
// operations a byte, so memory bound. float sums in fp32; int sums wrap at 32 bits as the document's do (in unsigned arithmetic,
// where wrapping is defined).
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "lab/kernels.h"

namespace xgemm::lab::reduction {

/// One pass: `blocks` partial sums of in[0 .. n).
template <class T>
struct Pass {
  const T* in;
  T* partials;
  T* out;             ///< of v8 and v9: where the sum goes
  unsigned* counter;  ///< of v8: a zero, which it leaves zero
  std::int64_t n;
  std::int64_t blocks;
  int sm_count;
  cudaStream_t stream;
};

inline constexpr int kThreads = 256;

using Int = unsigned;
struct Launch {
  void (*floats)(const Pass<float>&), (*ints)(const Pass<Int>&);
};
using Version = StepOf<Launch>;  ///< its size, from v6 on: elements that a thread loads before it adds any, 2 or 8
inline constexpr int kFirstWithLoads = 6, kFirstSinglePass = 8;

/// The grid of a pass. v6 and later have at most blocks_per_sm blocks an SM (8 of 256 threads are full occupancy) and stride over
/// the rest; Little's law asks for more bytes in flight than one load a thread.
struct Grid {
  int version, loads, blocks_per_sm, sm_count;

  /// Blocks of the pass over n elements.
  std::int64_t blocks(std::int64_t n) const {
    const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
    if (version <= 2) return ceil_div(n, kThreads);
    if (version <= 5) return ceil_div(n, 2 * kThreads);
    const std::int64_t most = std::int64_t{blocks_per_sm} * sm_count, needed = ceil_div(n, kThreads * loads);
    return needed < most ? needed : most;
  }
};

}  // namespace xgemm::lab::reduction
