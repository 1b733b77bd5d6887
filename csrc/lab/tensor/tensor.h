// The tensor-core ladder: out = A B^T in bf16 with fp32 sums, one file a step; A is m x k and B n x k, as a linear layer has
// them. Contract of every step: contiguous, m and n multiples of 256, k of 64, 16-byte aligned, so that a step shows its idea and
// not its edges (the library's kernel, step 14, takes everything). Sums run over k in ascending order. Work: 2 m n k operations;
// floor in bytes: 2 (m k + n k + m n).
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "device/tensor_map.h"

namespace xgemm::lab::tensor {

inline constexpr int kMultiple = 256, kMultipleK = 64;
/// What one TMA instruction brings: 128 rows of 64 elements (128 bytes), swizzled over 128 bytes.
inline constexpr int kBoxRows = 128, kBoxK = 64, kBoxBytes = kBoxRows * kBoxK * 2;
/// Of a box that step 13a's TMA takes away, 64 columns wide: what a warpgroup has.
inline constexpr int kOutBoxRows = 64;

struct Problem {
  const __nv_bfloat16 *a, *b;
  __nv_bfloat16* out;
  int m, n, k, sm_count;
  CUtensorMap map_a{}, map_b{}, map_out{};  ///< boxes as above; steps 11 and later read them
};

/// Fills the maps. False if the driver makes none.
inline bool make_maps(Problem& p) {
  const auto make = [](CUtensorMap& map, const void* data, int rows, int cols, int box_rows) {
    return make_tensor_map(map, {.data = data,
                                 .dtype = DType::bf16,
                                 .sizes = {cols, rows, 1},
                                 .strides = {cols, std::int64_t{cols} * rows},
                                 .box = {kBoxK, box_rows},
                                 .swizzle_bytes = 128});
  };
  return make(p.map_a, p.a, p.m, p.k, kBoxRows) && make(p.map_b, p.b, p.n, p.k, kBoxRows) &&
         make(p.map_out, p.out, p.m, p.n, kOutBoxRows);
}

using Step = void (*)(const Problem&, cudaStream_t);
void wmma_naive(const Problem&, cudaStream_t);          // 09
void mma_sync(const Problem&, cudaStream_t);            // 10
void wgmma_tma(const Problem&, cudaStream_t);           // 11, sm_90a
void wgmma_cp_async(const Problem&, cudaStream_t);      // 11a, sm_90a
void warp_specialised(const Problem&, cudaStream_t);    // 12, sm_90a
void persistent_cluster(const Problem&, cudaStream_t);  // 13, sm_90a
void tma_store(const Problem&, cudaStream_t);           // 13a, sm_90a

}  // namespace xgemm::lab::tensor
