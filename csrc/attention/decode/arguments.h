// Arguments of the decoding kernel and its merge.
#pragma once
#include "attention/arguments.h"

namespace xgemm::attention {

/// `parallel`, `failed` and the partial results of Arguments are not used.
struct DecodeArguments : Arguments {
  int split_keys = 0;
  /// Partial results, unnormalised: outputs (row, split, head size of the tile), then maximum and sum (row, split).
  float* partials = nullptr;
};

/// The index of the results of output row `row` and split `split`, counted from the first one.
__host__ __device__ inline std::int64_t partial_place(const DecodeArguments& a, std::int64_t row, int split) {
  return row * a.splits + split;
}

}  // namespace xgemm::attention
