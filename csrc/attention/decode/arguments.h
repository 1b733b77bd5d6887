// What the host hands to the decoding kernel and its merge.
#pragma once
#include "attention/arguments.h"

namespace xgemm::attention {

/// Of Arguments, `parallel`, `failed` and the partial results of simt/ are not used.
struct DecodeArguments : Arguments {
  int split_keys = 0;
  /// Partial results, unnormalised: outputs (row, split, head size of the tile), then maximum and sum (row, split).
  float* partials = nullptr;
};

/// Where the output row `row` keeps the results of split `split`, counted from the first one.
__host__ __device__ inline std::int64_t partial_place(const DecodeArguments& a, std::int64_t row, int split) {
  return row * a.splits + split;
}

}  // namespace xgemm::attention
