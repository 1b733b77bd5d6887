// The attention ladder: out = softmax(Q K^T / sqrt(d)) V of each head, in bf16 with fp32 sums, one file a step.
// Contract of every step: query, key, value and out are (heads, s, d), contiguous and 16-byte aligned; d is 64 or 128, s anything
// from 1; causal: row i sees keys 0 to i. Sums run over the keys in ascending order.
// Work: 4 s^2 d operations and s^2 exponentials a head, half of them where causal. Floor: 8 s d bytes a head (Q, K, V, out).
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "device/launch.h"
#include "device/tensor_map.h"
#include "lab/kernels.h"

namespace xgemm::lab::attention {

inline constexpr int kMaxHeads = 65535, kMaxLength = 1 << 20;  // of a grid's y and z; rows in tiles of at least 16
/// What one TMA instruction brings: 64 columns (128 bytes, swizzled) of as many rows as a warpgroup owns, or of a tile of keys.
inline constexpr int kBoxColumns = 64, kQueryRows = 64, kKeyRows = 128;

struct Problem {
  const __nv_bfloat16 *query, *key, *value;
  __nv_bfloat16* out;
  float* scores;  ///< (heads, s, s); only step 01 has it
  int heads, s, d;
  float scale_log2;  ///< log2(e) / sqrt(d): weights are powers of 2
  bool causal;
  CUtensorMap map_query{}, map_key{}, map_value{};  ///< boxes as above; steps 05 and later read them
};

/// Fills the maps. Rows of a head beyond s read as zeros. False if the driver makes none.
inline bool make_maps(Problem& p) {
  const auto make = [&](CUtensorMap& map, const void* data, int rows) {
    return make_tensor_map(map, {.data = data,
                                 .dtype = DType::bf16,
                                 .sizes = {p.d, p.s, p.heads},
                                 .strides = {p.d, std::int64_t{p.s} * p.d},
                                 .box = {kBoxColumns, rows},
                                 .swizzle_bytes = 128});
  };
  return make(p.map_query, p.query, kQueryRows) && make(p.map_key, p.key, kKeyRows) && make(p.map_value, p.value, kKeyRows);
}

/// Its size is d; from step 05 on sm_90a.
using Step = StepOf<void (*)(const Problem&, cudaStream_t)>;

/// A step for heads of kD columns whose blocks own kRows rows of a head each.
template <int kD, auto kKernel, int kRows, int kThreads, int kBytes = 0>
Step step(int number, const char* name) {
  const auto launch = [](const Problem& p, cudaStream_t stream) {
    const dim3 blocks((p.s + kRows - 1) / kRows, p.heads);
    enqueue_with_shared<kKernel, kBytes>({.blocks = blocks, .threads = dim3(kThreads)}, stream, p);
  };
  return {{number, kD}, name, kKernel, kThreads, launch, kBytes};
}

}  // namespace xgemm::lab::attention
