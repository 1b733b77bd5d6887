// The end of a tile of rows: merges the warps' results in shared memory, and those of splits in memory, each in a fixed order.
#pragma once
#include "attention/decode/warp.cuh"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

/// Stores four columns of output row `row`, and its log-sum-exp.
__device__ __forceinline__ void store_row(const DecodeArguments& a, std::int64_t row, int column, float maximum, float sum,
                                          const Vector<float, 4>& output) {
  const float keys = sum, inverse = finish_row(a, row, maximum, sum);
  Vector<float, 4> result;
#pragma unroll
  for (int x = 0; x < 4; ++x) result[x] = normalised(output[x], keys, inverse);
  store_columns(static_cast<float*>(a.output) + a.output_rows.place(row) * a.dv, column, a.dv, result);
  if (a.lse != nullptr && column == 0) static_cast<float*>(a.lse)[row] = log_sum(maximum, sum);
}

/// Merges results of one row at four columns.
struct MergedRow {
  float maximum, sum = 0;  ///< the maximum of all results that are added
  Vector<float, 4> output = {};

  __device__ __forceinline__ void add(float2 state, const Vector<float, 4>& part) {
    const float factor = rescale(state.x, maximum);
    sum = fmaf(state.y, factor, sum);
#pragma unroll
    for (int x = 0; x < 4; ++x) output[x] = fmaf(part[x], factor, output[x]);
  }
};

/// Called by the whole CTA: merges its warps' results and stores rows, or the results of split `split`.
template <DecodeTile kTile>
__device__ __forceinline__ void finish_tile(WarpRows<kTile>& warp, const DecodeArguments& a, const DecodeMemory<kTile>& memory,
                                            int split) {
  using Warp = WarpRows<kTile>;
  constexpr int kRows = kTile.rows, kPieces = Warp::kPieces;
  static_assert(kTile.slots_bytes() >= 4 * kDecodeWarps * kRows * kTile.head_size);
  static_assert(kTile.weight_bytes() >= 8 * kRows);
  const int thread = static_cast<int>(threadIdx.x), index = thread / 32, lane = warp.lane;
  float2* const states = reinterpret_cast<float2*>(memory.weights);  // [warp][row]
  __syncthreads();                                                   // no thread reads weights, keys or values any more
#pragma unroll
  for (int t = 0; t < Warp::kLaneRows; ++t) {
    float sum = warp.sum[t];
#pragma unroll
    for (int offset = 4; offset < 32; offset *= 2) sum += __shfl_xor_sync(kFullWarp, sum, offset);
    if (warp.key_lane == 0) states[index * kRows + warp.row(t)] = {warp.maximum[t], sum};
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int e = 0; e < Warp::kQuads; ++e) {
      Vector<float, 4> output;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        output[c] = warp.outputs[r][e][c];
        if (Warp::kHalves == 2) output[c] += __shfl_xor_sync(kFullWarp, output[c], 16);
      }
      if (lane < Warp::kColumnLanes)
        store_vector(memory.slots + (index * kRows + r) * kTile.head_size + 4 * (lane + e * Warp::kColumnLanes), output);
    }
  __syncthreads();

#pragma unroll 1
  for (int i = thread; i < kRows * kPieces; i += kDecodeThreads) {
    const int row = i / kPieces, column = i % kPieces * 4;
    const std::int64_t out = memory.rows[row].out;
    if (out < 0) return;  // rows after one that is out of bounds are, too
    MergedRow merged{-INFINITY};
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w) merged.maximum = fmaxf(merged.maximum, states[w * kRows + row].x);
#pragma unroll
    for (int w = 0; w < kDecodeWarps; ++w)
      merged.add(states[w * kRows + row], load_vector<4>(memory.slots + (w * kRows + row) * kTile.head_size + column));
    if (a.splits == 1) {
      store_row(a, out, column, merged.maximum, merged.sum, merged.output);
    } else {
      const std::int64_t place = partial_place(a, out, split);
      if (column < a.dv) store_vector(a.partials + place * kTile.head_size + column, merged.output);
      if (column == 0)
        store_vector(a.partials + a.total_rows() * a.splits * kTile.head_size + 2 * place,
                     Vector<float, 2>{{merged.maximum, merged.sum}});
    }
  }
}

inline constexpr int kDecodeMergeThreads = 256;

/// Merges the splits of one row per CTA: slices of the splits (split index modulo kSlices) in parallel, then the slices, each
/// in order. A row's splits are those with keys that it sees; others may be unwritten.
template <int kHeadSize>
__global__ void __launch_bounds__(kDecodeMergeThreads, 4) attention_decode_merge(const __grid_constant__ DecodeArguments a) {
  constexpr int kAcross = kHeadSize / 4, kSlices = kDecodeMergeThreads / kAcross;
  __shared__ Vector<float, 4> outputs[kSlices][kAcross];
  __shared__ float sums[kSlices];
  const std::int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x), slice = thread / kAcross, piece = thread % kAcross;
  const int position = static_cast<int>(a.output_rows.position(row)), begin = keys_begin(a, position),
            end = keys_end(a, position);
  const int first = begin / a.split_keys;
  const int splits = begin < end ? (end + a.split_keys - 1) / a.split_keys - first : 0;
  ptx::grid_release();
  const float* const partials = ptx::grid_wait(a.partials);
  const std::int64_t place = partial_place(a, row, first - a.first_split);
  const float4* const part = reinterpret_cast<const float4*>(partials + place * kHeadSize) + piece;
  const float2* const states = reinterpret_cast<const float2*>(partials + a.total_rows() * a.splits * kHeadSize) + place;

  MergedRow merged{-INFINITY};
#pragma unroll 4
  for (int split = thread % 32; split < splits; split += 32) merged.maximum = fmaxf(merged.maximum, __ldcg(states + split).x);
  merged.maximum = warp_reduce(merged.maximum, [](float x, float y) { return fmaxf(x, y); });
  if (4 * piece < a.dv || piece == 0) {
#pragma unroll 8
    for (int split = slice; split < splits; split += kSlices) {
      const float4 p = __ldcg(part + static_cast<std::int64_t>(split) * kAcross);
      merged.add(__ldcg(states + split), {{p.x, p.y, p.z, p.w}});
    }
  }
  outputs[slice][piece] = merged.output;
  if (piece == 0) sums[slice] = merged.sum;
  __syncthreads();
  if (slice != 0) return;
#pragma unroll
  for (int s = 1; s < kSlices; ++s) {
    merged.sum = s == 1 ? sums[0] + sums[1] : merged.sum + sums[s];
#pragma unroll
    for (int x = 0; x < 4; ++x) merged.output[x] += outputs[s][piece][x];
  }
  store_row(a, row, 4 * piece, merged.maximum, merged.sum, merged.output);
}

}  // namespace xgemm::attention
