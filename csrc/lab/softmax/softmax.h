// The softmax ladder: y[r][i] = exp(x[r][i]) / sum_j exp(x[r][j]) of each row, one file a variant.
// Contract of every variant: rows x cols in fp32, contiguous, any sizes from 1; one block a row; IEEE expf.
// Floor: 4 bytes read and 4 written an element, if a row were read once; each variant says how often it reads. NaN, +Inf and all
// -Inf rows give NaN, as in torch.softmax.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "lab/kernels.h"

namespace xgemm::lab::softmax {

struct Problem {
  const float* x;
  float* y;
  std::int64_t rows, cols;
};

inline constexpr int kThreads = 256;

/// Their numbers are their places in the op's list of variants.
using Step = StepOf<void (*)(const Problem&, cudaStream_t)>;

}  // namespace xgemm::lab::softmax
