// Launches the instantiations of kernel.cuh of one head size, and the merge of splits.
#pragma once
#include "attention/decode/kernel.cuh"
#include "attention/decode/launch.h"
#include "device/launch.h"

namespace xgemm::attention {

template <int kIndex>
void launch_decode_tile(const DecodePlan& plan, const DecodeArguments& a, cudaStream_t stream) {
  constexpr auto kernel = attention_decode<kIndex>;
  constexpr DecodeTile kTile = kDecodeTiles[kIndex];
  allow_shared<kernel, kTile.shared_bytes()>();
  const auto ctas = static_cast<unsigned>(plan.ctas);
  enqueue(kernel, {.blocks = ctas, .threads = kDecodeThreads, .shared_bytes = kTile.shared_bytes(), .early = true}, stream, a);
}

/// kFirst: the first tile of the head size; tiles of more rows follow.
template <int kFirst>
void launch_decode_head_size(const DecodePlan& plan, const DecodeArguments& a, cudaStream_t stream) {
  switch (plan.tile - kFirst) {
    case 0: launch_decode_tile<kFirst>(plan, a, stream); break;
    case 1: launch_decode_tile<kFirst + 1>(plan, a, stream); break;
    default: launch_decode_tile<kFirst + 2>(plan, a, stream);
  }
  if (plan.splits == 1) return;
  const auto rows = static_cast<unsigned>(a.total_rows());
  enqueue(attention_decode_merge<kDecodeTiles[kFirst].head_size>, {.blocks = rows, .threads = kDecodeMergeThreads, .early = true},
          stream, a);
}

}  // namespace xgemm::attention
