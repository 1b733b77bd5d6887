// The SGEMM ladder: out = alpha * A B + beta * C in fp32, one file a step.
// Contract of every step: A is m x k, B is k x n, C and out are m x n, all contiguous and row-major, any sizes from 0, any
// alignment. C is read only when beta is not 0, so NaN in an unused C never leaks. Sums run over k in ascending order with one
// FMA a term. Work: 2 m n k operations. Floor in bytes: 4 (m k + k n + m n), plus 4 m n when C is read.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "lab/kernels.h"

namespace xgemm::lab::sgemm {

struct Problem {
  const float *a, *b, *c;
  float* out;
  int m, n, k;
  float alpha, beta;
};

/// Sizes stay this far below 2^31 so that a tile's row and column indices never overflow an int.
inline constexpr std::int64_t kMaxSize = (std::int64_t{1} << 31) - 1024;

/// Numbers 1 to 7 are steps 01 to 07, 8 and 9 steps 07a and 07b (sm_80).
using Step = StepOf<void (*)(const Problem&, cudaStream_t)>;

}  // namespace xgemm::lab::sgemm
