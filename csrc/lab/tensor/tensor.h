// The tensor-core ladder: out = A B^T in bf16 with fp32 sums, one file a step; A is m x k and B n x k, as a linear layer has
// them. Contract of every step: contiguous, m and n multiples of 256, k of 64, 16-byte aligned, so that a step shows its idea and
// not its edges (the library's kernel, step 14, takes everything). Sums run over k in ascending order. Work: 2 m n k operations;
// floor in bytes: 2 (m k + n k + m n).
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "device/launch.h"
#include "device/tensor_map.h"
#include "lab/kernels.h"

namespace xgemm::lab::tensor {

inline constexpr int kMultiple = 256, kMultipleK = 64;
/// What one TMA instruction brings: 128 rows of 64 elements (128 bytes), swizzled over 128 bytes.
inline constexpr int kBoxRows = 128, kBoxK = 64, kBoxBytes = kBoxRows * kBoxK * 2;
inline constexpr int kOutBoxRows = 64;  ///< of a box that step 13a's TMA takes away, 64 columns wide: what a warpgroup has

struct Problem {
  const __nv_bfloat16 *a, *b;
  __nv_bfloat16* out;
  int m, n, k, sm_count;
  CUtensorMap map_a{}, map_b{}, map_out{};  ///< boxes as above; steps 11 and later read them
};

/// False if the driver makes none.
inline bool make_map(CUtensorMap& map, const void* data, std::int64_t rows, std::int64_t cols, DType dtype = DType::bf16,
                     int box_rows = kBoxRows) {
  return make_tensor_map(map, {.data = data,
                               .dtype = dtype,
                               .sizes = {cols, rows, 1},
                               .strides = {cols, cols * rows},
                               .box = {kBoxK, box_rows},
                               .swizzle_bytes = 128});
}
inline bool make_maps(Problem& p) {
  return make_map(p.map_a, p.a, p.m, p.k) && make_map(p.map_b, p.b, p.n, p.k) &&
         make_map(p.map_out, p.out, p.m, p.n, DType::bf16, kOutBoxRows);
}

/// Numbers 9 to 13 are steps 09 to 13, 14 and 15 steps 11a and 13a; from 11 on sm_90a.
using Step = StepOf<void (*)(const Problem&, cudaStream_t)>;

/// A step whose blocks compute kM x kN elements of C each.
template <auto kKernel, int kM, int kN, int kThreads, int kBytes = 0>
Step step(int number, const char* name) {
  const auto launch = [](const Problem& p, cudaStream_t stream) {
    enqueue_with_shared<kKernel, kBytes>({.blocks = dim3(p.n / kN, p.m / kM), .threads = dim3(kThreads)}, stream, p);
  };
  return {{number}, name, kKernel, kThreads, launch, kBytes};
}

}  // namespace xgemm::lab::tensor
