// What steps 05 to 07 share: tiles in shared memory as TMA leaves them, and the two products of a warpgroup's 64 rows. sm_90a
// only.
#pragma once
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "lab/attention/rows.cuh"

namespace xgemm::lab::attention {

inline constexpr int kWarpgroup = 128;

/// Rows of a head, one block of 64 columns behind the other; starts at a multiple of 1024 bytes.
template <int kD, int kRows>
using Tile = __nv_bfloat16[kD / kBoxColumns][kRows][kBoxColumns];
template <int kD>
using QueryTile = Tile<kD, kQueryRows>;
template <int kD>
using KeyTile = Tile<kD, kKeyRows>;  // values too

/// A warpgroup's registers: scores of 64 rows and 128 keys, the same as weights in A operands, 64 rows of out.
using Scores = float[kKeyRows / 2];
using Weights = std::uint32_t[kKeyRows / 16][4];
template <int kD>
using Out = float[kD / 2];

#ifdef XGEMM_LAB_HOPPER
/// By one thread: rows `row` and on of a head. `full` completes when they are there.
template <int kD, int kRows>
__device__ __forceinline__ void load(Tile<kD, kRows>& to, const CUtensorMap& map, ptx::Barrier& full, int row, int head) {
  ptx::barrier_arrive_expect(&full, sizeof(to));
  for (int block = 0; block < kD / kBoxColumns; ++block) ptx::tma_load(to[block], &map, &full, block * kBoxColumns, row, head);
}

/// Starts scores = Q K^T: both operands from shared memory, rows along d.
template <int kD>
__device__ __forceinline__ void multiply_keys(Scores& scores, const QueryTile<kD>& query, const KeyTile<kD>& keys) {
  using Layout = ptx::OperandLayout<true, 128, 0>;
  ptx::wgmma_pin(scores);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    const auto at = [&](const auto& tile) {
      return Layout::descriptor(ptx::shared_address(tile[k / 4]) + k % 4 * Layout::kStepBytes);
    };
    ptx::Wgmma<__nv_bfloat16, true, true>::mma(scores, at(query), at(keys), k > 0);
  }
  ptx::wgmma_commit();
}

/// Starts out += P V: weights from registers, values as they lie in memory, rows along n. The weights must not change before the
/// wait.
template <int kD>
__device__ __forceinline__ void multiply_values(Out<kD>& out, Weights& weights, const KeyTile<kD>& values) {
  using Layout = ptx::OperandLayout<false, 128, sizeof(values[0])>;
  ptx::wgmma_pin(out);
#pragma unroll
  for (auto& fragment : weights) ptx::wgmma_pin(fragment);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kKeyRows / 16; ++k)
    ptx::WgmmaRegisters<__nv_bfloat16, false>::mma(
        out, weights[k], Layout::descriptor(ptx::shared_address(values) + k * Layout::kStepBytes), true);
  ptx::wgmma_commit();
}

/// This thread's row of h = 0; `first`: the warpgroup's first row.
__device__ __forceinline__ int row_from(int first) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  return first + thread / 32 * 16 + thread % 32 / 4;
}

/// Scores of the tile of keys from `key` on become weights, and out comes to the new maximum.
template <int kD>
__device__ __forceinline__ void soften(Weights& weights, Scores& scores, Out<kD>& out, OnlineSoftmax& softmax, const Problem& p,
                                       int first, int key) {
  if (key + kKeyRows > keys_of(p, first)) mask(scores, p, row_from(first), key);
  softmax.add(scores, out, p.scale_log2);
  to_fragments(weights, scores);
}

/// The end: normalises and stores.
template <int kD>
__device__ __forceinline__ void finish(const Out<kD>& out, OnlineSoftmax& softmax, const Problem& p, int head, int first) {
  softmax.finish();
  store(p, head, row_from(first), out, softmax.sum);
}
#endif

}  // namespace xgemm::lab::attention
