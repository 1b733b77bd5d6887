#pragma once
#include "hopper.h"
#include "matmul/kernels/full_range_gemm.cuh"
namespace xgemm::dev {
void split(const SplitArguments& s, bool k_major, cudaStream_t stream);
void full_range(const FullRangeArguments<NoTransform>& g, cudaStream_t stream);
}  // namespace xgemm::dev
