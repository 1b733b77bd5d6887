// The fp32 ladder: out = A B^T in fp32 on fp16 tensor cores, A m x k, B n x k; each variant adds one idea, and its error shows
// what it buys.
//   fp16      hi = fp16(x), one product: 11 bits of 24, and nothing beyond 65504 or below 6e-8
//   split     x = hi + lo in fp16: lo*hi + hi*lo + hi*hi; the tensor cores round every addition toward zero
//   promoted  the sum of each 64 of k moves to fp32 registers, where the CUDA cores add it with proper rounding
//   scaled    rows are multiplied by powers of two first, so that lo keeps its bits whatever the row's magnitude
// Contract: contiguous, finite, m and n multiples of 256, k of 64. Work: 2 m n k times the number of products, and a pass over A
// and B that reads 4 and writes 4 bytes an element.
#pragma once
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "lab/kernels.h"

namespace xgemm::lab::fp32 {

/// One operand: fp32 rows and what the split pass makes of them. x = (hi + lo) * 2^exponent[row].
struct Operand {
  const float* x;
  __half *hi, *lo;
  int* exponent;
  int rows;
  CUtensorMap map_hi, map_lo;  ///< boxes of lab/tensor/tensor.h
};

struct Problem {
  Operand a, b;
  float* out;
  int k;
};

void split(const Operand& operand, int k, bool scaled, cudaStream_t stream);

/// Of a product; its number is the variant's place in the op's list.
using Step = StepOf<void (*)(const Problem&, cudaStream_t)>;

}  // namespace xgemm::lab::fp32
