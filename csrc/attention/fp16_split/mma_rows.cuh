// A warp's 16 rows against tiles of keys by mma.sync on two fp16 parts: mma_kernel.cu's products, softmax and stores.
#pragma once
#include "attention/fp16_split/finish.cuh"
#include "attention/fp16_split/part_sums.cuh"
#include "attention/fp16_split/tile.h"
#include "attention/mma/copies.cuh"
#include "attention/tiles/mask.cuh"
#include "device/ptx/mbarrier.cuh"

namespace xgemm::attention {

template <int kIndex, Masking kMasking>
struct SplitRows {
  static constexpr Tile kTile = kSplitMmaTiles[kIndex];
  static constexpr int kColumns = kTile.head_size, kKeys = kTile.keys, kSteps = kColumns / 16, kRowBytes = 2 * kColumns;
  static constexpr int kQueryPart = kTile.rows() * kRowBytes, kPart = kKeys * kRowBytes;  ///< bytes; high, then low
  static constexpr int kBlockRows = split_block_rows(kColumns);
  static constexpr bool kHoldsQueries = kTile.query_slots == 0;
  using QueryReader = TileReader<kColumns, true>;
  using KeyReader = TileReader<kColumns, false>;
  using ValueReader = TileReader<kColumns, true>;

  const SplitMmaArguments& g;
  std::uint32_t query_at;                                ///< this lane's first queries, in shared memory
  int key_block, value_block;                            ///< of split.cuh, the first of the tile's
  float row_scale[2];                                    ///< of scores before the softmax (masks), else of its argument
  std::uint32_t held[kHoldsQueries ? kSteps : 1][2][4];  ///< A fragments of the queries
  float outputs[kColumns / 2] = {};
  OnlineSoftmax<kKeys> softmax;  ///< sums times kWeightScale

  /// `queries`: the tile's, in shared memory.
  __device__ __forceinline__ SplitRows(const SplitMmaArguments& arguments, const RowTile& tile, const unsigned char* queries)
      : g(arguments),
        query_at(ptx::shared_address(queries) +
                 static_cast<std::uint32_t>(QueryReader().lane_at + thread_index() / 32 * 16 * kRowBytes)) {
    key_block = warp_uniform(tile.batch_of(g.key_steps) * g.key_blocks);
    value_block = warp_uniform(tile.batch_of(g.value_steps) * g.key_blocks);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      row_scale[h] = query_scale(g, tile, tile.row + first_row() + 8 * h) *
                     ((has_mask(kMasking) ? g.score_scale : g.scale_log2) * g.correction);
  }

  /// This thread's first row in the tile; the second is 8 further.
  static __device__ __forceinline__ int first_row() { return thread_index() / 32 * 16 + thread_index() % 32 / 4; }
  /// Its first column of accumulators.
  static __device__ __forceinline__ int first_column() { return 2 * (thread_index() % 4); }
  /// Found again where it is needed: there is no register for it in the loop.
  __device__ __forceinline__ RowTile row_tile() const { return RowTile(g, block_index()); }

  static __device__ __forceinline__ void load_query(std::uint32_t (&parts)[2][4], int step, std::uint32_t from) {
#pragma unroll
    for (int part = 0; part < 2; ++part) ptx::ldmatrix(parts[part], QueryReader::at(step, from) + part * kQueryPart);
  }
  __device__ __forceinline__ void load_queries() {
#pragma unroll
    for (int step = 0; step < (kHoldsQueries ? kSteps : 1); ++step) load_query(held[step], step, query_at);
  }

  /// Scores of tile n, times the keys' scales.
  __device__ __forceinline__ void multiply_keys(float (&scores)[kKeys / 2], int n, const unsigned char* keys) {
    constexpr int kUnrolled = kHoldsQueries ? kSteps : Swizzle<kColumns>::kPieces / 2;  // then addresses repeat
    std::uint32_t at = ptx::shared_address(keys) + static_cast<std::uint32_t>(KeyReader().lane_at), from = query_at;
    const std::uint16_t* const of_keys = g.key_scales + std::int64_t{key_block} * kBlockRows + n * kKeys + first_column();
    std::uint32_t scales[kKeys / 8];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) scales[j] = *reinterpret_cast<const std::uint32_t*>(of_keys + 8 * j);
    PartSums sums[kKeys / 16];
#pragma unroll 1
    for (int first = 0; first < kSteps; first += kUnrolled, at += 32 * kUnrolled, from += 32 * kUnrolled)
#pragma unroll
      for (int step = 0; step < kUnrolled; ++step) {
        std::uint32_t(&query)[2][4] = held[kHoldsQueries ? step : 0];
        if constexpr (!kHoldsQueries) load_query(query, step, from);
#pragma unroll
        for (int key = 0; key < kKeys; key += 16) {
          std::uint32_t b[2][4];
#pragma unroll
          for (int part = 0; part < 2; ++part) ptx::ldmatrix(b[part], KeyReader::at(step, at) + part * kPart + key * kRowBytes);
          sums[key / 16].add(query, b);
        }
      }
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      const float2 scale = unpack_pair<bf16>(scales[j]);
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[4 * j + i] = sums[j / 2][j % 2 * 4 + i] * (i % 2 == 0 ? scale.x : scale.y);
    }
  }

  /// Scores become weights. `edge`, `mixed`: KeyWalk's on_edge() and on_mask() of tile n.
  __device__ __forceinline__ void soften(float (&scores)[kKeys / 2], int n, bool edge, bool mixed) {
    if constexpr (has_mask(kMasking)) {
      const RowTile tile = row_tile();
      const int rows[2] = {tile.row + first_row(), tile.row + first_row() + 8};
      if (g.mask.dtype == DType::boolean) {
        TileMask<kKeys, Masking::boolean, false> mask(g, tile, rows, kTile.rows());
        mask.load(g, n, mixed, !edge);
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) scores[i] *= row_scale[i / 2 % 2];
        mask.apply(scores, g);
      } else {
        AdditiveMask<kKeys> mask(g, tile, rows, kTile.rows());
        mask.load(g, n, mixed, !edge);
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) scores[i] = fmaf(scores[i], row_scale[i / 2 % 2], mask.values[i]);
      }
    }
    if (edge) {
      const RowTile tile = row_tile();
      mask_edges<kKeys>(scores, n * kKeys, RowLimits(g, tile.bounds(g), tile.row + first_row()));
    }
    const float scale[2] = {has_mask(kMasking) ? kLog2E : row_scale[0], has_mask(kMasking) ? kLog2E : row_scale[1]};
    softmax.raise_maximum(scores, scale);
    const float base[2] = {softmax_base(softmax.maximum[0]), softmax_base(softmax.maximum[1])};
    softmax.exponentiate(scores, [&](float score, int h) { return scaled_weight<2>(score, base[h], scale[h]); });
  }

  /// O = O factor + P V.
  __device__ __forceinline__ void multiply_values(const float (&weights)[kKeys / 2], int n, const unsigned char* values) {
    const std::uint32_t at = ptx::shared_address(values) + static_cast<std::uint32_t>(ValueReader().lane_at);
    std::uint32_t parts[kKeys / 16][2][4];
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i)
      split_pair(weights[2 * i], weights[2 * i + 1], parts[i / 4][0][i % 4], parts[i / 4][1][i % 4]);
    const std::uint16_t* const scales =
        g.value_scales + std::int64_t{value_block + n * kKeys / kBlockRows} * kColumns + first_column();
#pragma unroll
    for (int pair = 0; pair < kSteps; ++pair) {
      const float2 scale[2] = {load_scales(scales + 16 * pair), load_scales(scales + 16 * pair + 8)};
      float sums[2][4] = {};
      multiply_parts(sums, parts, [&](std::uint32_t(&b)[2][4], int step) {
#pragma unroll
        for (int part = 0; part < 2; ++part)
          ptx::ldmatrix_transposed(b[part], ValueReader::at(pair, at) + part * kPart + step * 16 * kRowBytes);
      });
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float& output = outputs[8 * pair + i];
        output = fmaf(sums[i / 4][i % 4], i % 2 == 0 ? scale[i / 4].x : scale[i / 4].y, output * softmax.factor[i / 2 % 2]);
      }
    }
  }

  __device__ __forceinline__ void finish() {
    finish_rows<has_mask(kMasking) ? Masking::additive : Masking::edges>(g, row_tile(), softmax, outputs, first_row());
  }
};

}  // namespace xgemm::attention
