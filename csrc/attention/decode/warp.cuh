// One warp's share of the keys against all rows of a tile: online softmax, outputs in registers.
//
// A step is kTile.keys() keys. Scores: lane l multiplies the keys l / 4 + 8 j and the pieces l % 4 + 4 i of 16 bytes of their
// columns; exchanges within four lanes then leave each lane the scores of its keys and of a quarter of the rows (Scores).
// Outputs: a lane has 4 columns, or twice 4, of all rows; at head size 64 each half of the warp takes every second key.
#pragma once
#include "attention/arguments.h"
#include "attention/decode/plan.h"
#include "attention/simt/rows.cuh"
#include "attention/simt/softmax.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"

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

/// A packed row in shared memory.
struct DecodeRow {
  std::int64_t mask, out;
  int begin, end;  ///< the keys that it sees; none if it is out of bounds
  std::int64_t query;
};
static_assert(sizeof(DecodeRow) == DecodeTile::kRowBytes);

/// Shared memory of a CTA.
template <DecodeTile kTile>
struct DecodeMemory {
  float* slots;    ///< [warp][keys, values] of copies.cuh; at the end outputs [warp][row][column] (merge.cuh)
  float* queries;  ///< [row][column], zeros out of bounds
  float* weights;  ///< [warp]: weights of a step [key][row], then a factor per row
  DecodeRow* rows;
  __device__ __forceinline__ explicit DecodeMemory(unsigned char* memory)
      : slots(reinterpret_cast<float*>(memory)),
        queries(reinterpret_cast<float*>(memory + kTile.slots_bytes())),
        weights(reinterpret_cast<float*>(memory + kTile.slots_bytes() + kTile.query_bytes())),
        rows(reinterpret_cast<DecodeRow*>(memory + kTile.slots_bytes() + kTile.query_bytes() +
                                          kDecodeWarps * kTile.weight_bytes())) {}
};

template <DecodeTile kTile>
struct WarpRows {
  static constexpr int kRows = kTile.rows, kHeadSize = kTile.head_size, kKeys = kTile.keys();
  static constexpr int kLaneRows = kRows / 4, kLaneKeys = kKeys / kDecodeKeyLanes;  // of a lane's scores
  static constexpr int kPieces = kHeadSize / 4;                                     // 16 bytes each
  static constexpr int kColumnLanes = kPieces < 32 ? kPieces : 32, kHalves = 32 / kColumnLanes;
  static constexpr int kQuads = kPieces / kColumnLanes;  // 4 output columns each of a lane
  using Scores = float[kLaneKeys][kLaneRows];            ///< of keys key(j) and rows row(0) + t

  const DecodeArguments& a;
  const DecodeMemory<kTile>& memory;
  int lane, key_lane;
  int quarter;  ///< the quarter of the rows whose scores this lane keeps
  float* weights;
  float* factors;
  float maximum[kLaneRows], sum[kLaneRows];  ///< the sum of this lane's keys
  float outputs[kRows][kQuads][4];

  __device__ __forceinline__ WarpRows(const DecodeArguments& a, const DecodeMemory<kTile>& memory)
      : a(a),
        memory(memory),
        lane(static_cast<int>(threadIdx.x) % 32),
        key_lane(lane / 4),
        quarter(lane % 2 * 2 + lane / 2 % 2),
        weights(memory.weights + static_cast<int>(threadIdx.x) / 32 * (kTile.weight_bytes() / 4)),
        factors(weights + kKeys * kRows) {
#pragma unroll
    for (int t = 0; t < kLaneRows; ++t) maximum[t] = -INFINITY, sum[t] = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int e = 0; e < kQuads; ++e)
#pragma unroll
        for (int x = 0; x < 4; ++x) outputs[r][e][x] = 0;
  }
  __device__ __forceinline__ int key(int j) const { return key_lane + kDecodeKeyLanes * j; }
  __device__ __forceinline__ int row(int t) const { return quarter * kLaneRows + t; }

  /// Products of the queries and a step's keys. Partial sum i of a lane belongs to row i ^ row(0), so that an exchange between
  /// lanes of different quarters always sends the upper half of the partial sums, without a selection.
  __device__ __forceinline__ void multiply_keys(Scores& scores, const float* keys) const {
    float partial[kRows][kLaneKeys];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int j = 0; j < kLaneKeys; ++j) partial[r][j] = 0;
    const int piece = lane % 4;
    const float* queries[4];
#pragma unroll
    for (int part = 0; part < 4; ++part) queries[part] = memory.queries + (part ^ quarter) * (kLaneRows * kHeadSize) + 4 * piece;
    keys += key_lane * kHeadSize + 4 * piece;
    const int odd = key_lane % 2 * 16;  // piece 4 i of an odd key is at index 4 (i ^ 1) (copies.cuh)
    const float* places[2] = {keys + odd, keys + 16 - odd};
#pragma unroll(kRows > 8 ? 1 : 2)
    for (int column = 0; column < kHeadSize; column += 32)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        Vector<float, 4> k[kLaneKeys];
#pragma unroll
        for (int j = 0; j < kLaneKeys; ++j) k[j] = load_vector<4>(places[half] + j * (kDecodeKeyLanes * kHeadSize) + column);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const auto q = load_vector<4>(queries[r / kLaneRows] + r % kLaneRows * kHeadSize + 16 * half + column);
#pragma unroll
          for (int x = 0; x < 4; ++x)
#pragma unroll
            for (int j = 0; j < kLaneKeys; ++j) partial[r][j] = fmaf(q[x], k[j][x], partial[r][j]);
        }
      }
#pragma unroll
    for (int j = 0; j < kLaneKeys; ++j) {
#pragma unroll
      for (int r = 0; r < kRows / 2; ++r) partial[r][j] += __shfl_xor_sync(kFullWarp, partial[r + kRows / 2][j], 1);
#pragma unroll
      for (int t = 0; t < kLaneRows; ++t) scores[j][t] = partial[t][j] + __shfl_xor_sync(kFullWarp, partial[t + kLaneRows][j], 2);
    }
  }

  /// Turns products into scores: soft capping, scale, mask, limits. `first`: the step's first key. `mask`: the batch's offset.
  __device__ __forceinline__ void finish_scores(Scores& scores, int first, std::int64_t mask, bool edge) const {
    if (a.cap_scale != 0) {
#pragma unroll
      for (int j = 0; j < kLaneKeys; ++j)
#pragma unroll
        for (int t = 0; t < kLaneRows; ++t) scores[j][t] = tanhf(scores[j][t] * static_cast<float>(a.cap_scale));
    }
    const auto scale = static_cast<float>(a.scale);
    if (a.masked) {
      const auto biased = [&](auto type) {
        using M = typename decltype(type)::type;
#pragma unroll
        for (int t = 0; t < kLaneRows; ++t) {
          const DecodeRow& place = memory.rows[row(t)];
          const M* from = static_cast<const M*>(a.mask.data) + mask + place.mask + (first + key_lane) * a.mask.column;
#pragma unroll
          for (int j = 0; j < kLaneKeys; ++j, from += kDecodeKeyLanes * a.mask.column) {
            float bias = 0;
            if (place.end != 0 && first + key(j) < a.sk) {
              const M m = *from;
              if constexpr (std::is_same_v<M, bool>)
                bias = m ? 0.f : -INFINITY;  // added, as SDPA does: a NaN score stays NaN
              else
                bias = m;
            }
            scores[j][t] = fmaf(scores[j][t], scale, bias);
          }
        }
      };
      a.mask_dtype == DType::boolean ? biased(Type<bool>{}) : biased(Type<float>{});
    } else {
#pragma unroll
      for (int j = 0; j < kLaneKeys; ++j)
#pragma unroll
        for (int t = 0; t < kLaneRows; ++t) scores[j][t] *= scale;
    }
    if (edge) {
#pragma unroll
      for (int t = 0; t < kLaneRows; ++t) {
        const int before = memory.rows[row(t)].begin - first - key_lane, end = memory.rows[row(t)].end - first - key_lane;
#pragma unroll
        for (int j = 0; j < kLaneKeys; ++j)
          if (kDecodeKeyLanes * j < before || kDecodeKeyLanes * j >= end) scores[j][t] = -INFINITY;
      }
    }
  }

  /// Writes the step's weights to shared memory; the warp may read them after a __syncwarp. Outputs and sums are rescaled only
  /// if a maximum grows: else the factor is 1.
  __device__ __forceinline__ void exponentiate(const Scores& scores) {
    float largest[kLaneRows];
    bool grows = false;
#pragma unroll
    for (int t = 0; t < kLaneRows; ++t) {
      largest[t] = maximum[t];
#pragma unroll
      for (int j = 0; j < kLaneKeys; ++j) largest[t] = fmaxf(largest[t], scores[j][t]);  // NaN comes back through the sum
#pragma unroll
      for (int offset = 4; offset < 32; offset *= 2)
        largest[t] = fmaxf(largest[t], __shfl_xor_sync(kFullWarp, largest[t], offset));
      grows = grows || largest[t] > maximum[t];
    }
    if (__any_sync(kFullWarp, grows)) rescale_to(largest);
    Vector<float, kLaneRows> p[kLaneKeys];
#pragma unroll
    for (int t = 0; t < kLaneRows; ++t) {
      const float base = anchor(maximum[t]);
#pragma unroll
      for (int j = 0; j < kLaneKeys; ++j) {
        p[j][t] = exp_of(scores[j][t] - base);
        sum[t] += p[j][t];
      }
    }
#pragma unroll
    for (int j = 0; j < kLaneKeys; ++j) store_vector(weights + key(j) * kRows + row(0), p[j]);
  }

  __device__ __forceinline__ void rescale_to(const float (&largest)[kLaneRows]) {
#pragma unroll
    for (int t = 0; t < kLaneRows; ++t) {
      // A row with an infinite score is NaN and its sum infinite, also if exp(maximum) times a sum of 0 would be NaN.
      const float factor = largest[t] == INFINITY ? 1.f : rescale(maximum[t], largest[t]);
      maximum[t] = largest[t];
      sum[t] *= factor;
      if (key_lane == 0) factors[row(t)] = factor;
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < kRows; r += 4) {
      const auto factor = load_vector<4>(factors + r);
#pragma unroll
      for (int x = 0; x < 4; ++x)
#pragma unroll
        for (int e = 0; e < kQuads; ++e)
#pragma unroll
          for (int c = 0; c < 4; ++c) outputs[r + x][e][c] *= factor[x];
    }
  }

  /// Adds a step's values times their weights.
  __device__ __forceinline__ void multiply_values(const float* values) {
    const int half = lane / kColumnLanes;
    const float* const value = values + half * kHeadSize + lane % kColumnLanes * 4;
    const float* const weight = weights + half * kRows;
#pragma unroll(kRows > 8 ? 2 : 4)
    for (int key = 0; key < kKeys; key += kHalves) {
      Vector<float, 4> v[kQuads];
#pragma unroll
      for (int e = 0; e < kQuads; ++e) v[e] = load_vector<4>(value + key * kHeadSize + e * (4 * kColumnLanes));
#pragma unroll
      for (int r = 0; r < kRows; r += 4) {
        const auto p = load_vector<4>(weight + key * kRows + r);
#pragma unroll
        for (int x = 0; x < 4; ++x)
#pragma unroll
          for (int e = 0; e < kQuads; ++e)
#pragma unroll
            for (int c = 0; c < 4; ++c) outputs[r + x][e][c] = fmaf(p[x], v[e][c], outputs[r + x][e][c]);
      }
    }
  }
};

}  // namespace xgemm::attention
