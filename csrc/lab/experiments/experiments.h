// The documents' single experiments. Each .cu states what it shows; experiments.cpp checks arguments, allocates, and launches its
// kernels by their names. All arrays are contiguous; n is a number of elements and may be any value from 1.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "lab/kernels.h"

namespace xgemm::lab::experiments {

inline constexpr int kThreads = 256;     ///< of a block, where an experiment does not vary or say it
inline constexpr int kReadChunk = 4096;  ///< elements of a block in L1 or shared memory
inline constexpr int kMaxWindow = 1025;
inline constexpr int kMaxBins = 8192;

/// Of tiling.cu.
struct Matrices {
  const float *a, *b;
  float* c;
  int m, n, k;
};

}  // namespace xgemm::lab::experiments
