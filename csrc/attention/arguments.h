// Arguments of the attention kernels.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "attention/output_rows.h"
#include "device/dtype.h"

namespace xgemm::attention {

inline constexpr int kMaxBatchDims = 12;

/// A (batch..., rows, columns) operand, strides in elements.
struct Operand {
  const void* data = nullptr;
  std::int64_t row = 0, column = 0;
  std::int64_t group = 0;  ///< stride between query heads that share a key head
  std::int64_t batch[kMaxBatchDims] = {};
  bool vector = false;  ///< may be loaded 16 bytes at a time: columns adjacent, rows aligned (half types: whole vectors only)
};

struct Arguments {
  Operand query, key, value, mask, sinks;  ///< `row` and `column` of sinks are unused; data is null without sinks
  DType dtype, mask_dtype, sinks_dtype;    ///< of query, key, value and output; of the mask; of the sinks
  int batch_dims = 0;
  std::uint32_t batch_sizes[kMaxBatchDims] = {};
  std::uint32_t key_group = 1, value_group = 1;  ///< query heads per key and per value head, if these differ; else 1
  std::uint32_t batches = 0, row_tiles = 0;
  int group = 1;  ///< query heads that share a key head; packed row r is head r % group at position r / group
  int sq = 0, sk = 0, d = 0, dv = 0;
  double cap_scale = 0;  ///< unless 0, products become tanh(product * cap_scale)
  double scale = 1;      ///< of products, or of these tanhs: gives the scores
  bool masked = false;
  std::int64_t first = 0, last = 0;  ///< position i sees keys max(0, i + first) to min(sk, i + last) - 1
  int first_split = 0, splits = 1;   ///< splits of the keys with keys that some row sees
  bool parallel = false;
  const unsigned* failed = nullptr;  ///< a word per batch; batches with 0 are already computed; null: compute all
  void* output = nullptr;            ///< (batches, group, Sq, Dv), its rows where output_rows says
  OutputRows output_rows = {};
  void* lse = nullptr;             ///< contiguous (batches, group, Sq), may be null
  void* partial_output = nullptr;  ///< (partials, batches * group * Sq, head size of the tile), in fp32 or fp64, unnormalised
  void* partial_max = nullptr;     ///< (partials, batches * group * Sq)
  void* partial_sum = nullptr;     ///< the same

  __host__ __device__ std::int64_t total_rows() const { return std::int64_t{batches} * group * sq; }
};

}  // namespace xgemm::attention
