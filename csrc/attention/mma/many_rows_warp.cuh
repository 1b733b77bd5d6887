// A warp's rows against the CTA's tiles of keys, and their outputs: many_rows.cuh's products, softmax and stores.
#pragma once
#include "attention/mma/copies.cuh"
#include "attention/tiles/finish.cuh"
#include "attention/tiles/softmax.cuh"
#include "device/ptx/mbarrier.cuh"
#include "device/ptx/mma.cuh"

namespace xgemm::attention {

template <class Element, int kIndex, Masking kMasking>
struct ManyRowsWarp {
  static constexpr Tile kTile = kManyRowsTiles[kIndex];
  static constexpr int kKeys = kTile.keys, kBlocks = kTile.row_blocks, kSteps = kTile.head_size / 16;
  static constexpr int kValueSize = kTile.value_size;
  static constexpr bool kHoldsQueries = kTile.query_slots == 0;
  using QueryReader = TileReader<kTile.head_size, true>;
  using KeyReader = TileReader<kTile.head_size, false>;
  using ValueReader = TileReader<kTile.value_size, true>;

  using RowTile = TileOf<kMasking>;
  const ArgumentsOf<MmaArguments, kMasking>& g;
  std::uint32_t query_at;                                         ///< this lane's first queries
  std::uint32_t queries[kHoldsQueries ? kSteps : 1][kBlocks][4];  ///< A fragments
  float scores[kBlocks][kKeys / 2], outputs[kBlocks][kValueSize / 2] = {};
  OnlineSoftmax<kKeys> softmax[kBlocks];

  /// `memory`: the tile's queries.
  __device__ __forceinline__ ManyRowsWarp(const ArgumentsOf<MmaArguments, kMasking>& arguments, unsigned char* memory)
      : g(arguments), query_at(ptx::shared_address(warp_memory(memory)) + static_cast<std::uint32_t>(QueryReader().lane_at)) {}

  /// The warp's queries, then its outputs, in the memory of the tile's.
  static __device__ __forceinline__ unsigned char* warp_memory(unsigned char* memory) {
    return memory + thread_index() / 32 * (16 * kBlocks * 2 * kTile.head_size);
  }
  /// Found again where it is needed: there is no register for it in the loop.
  __device__ __forceinline__ decltype(auto) row_tile() const {
    if constexpr (kMasking == Masking::sequences)
      return held_tile();
    else
      return RowTile(g, block_index());
  }

  /// This thread's first row of a block in the tile.
  static __device__ __forceinline__ int first_row(int block) {
    const int thread = thread_index();
    return (thread / 32 * kBlocks + block) * 16 + thread % 32 / 4;
  }

  __device__ __forceinline__ void load_query(std::uint32_t (&fragments)[kBlocks][4], int step, std::uint32_t from) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
      ptx::ldmatrix(fragments[block], QueryReader::at(step, from) + block * 16 * 2 * kTile.head_size);
  }
  __device__ __forceinline__ void load_queries() {
#pragma unroll
    for (int step = 0; step < (kHoldsQueries ? kSteps : 1); ++step) load_query(queries[step], step, query_at);
  }

  __device__ __forceinline__ void multiply_keys(const unsigned char* keys) {
    constexpr int kUnrolled = kHoldsQueries ? kSteps : Swizzle<kTile.head_size>::kPieces / 2;  // then addresses repeat
    std::uint32_t at = ptx::shared_address(keys) + static_cast<std::uint32_t>(KeyReader().lane_at), from = query_at;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (float& score : scores[block]) score = 0;
#pragma unroll 1
    for (int first = 0; first < kSteps; first += kUnrolled, at += 32 * kUnrolled, from += 32 * kUnrolled)
#pragma unroll
      for (int step = 0; step < kUnrolled; ++step) {
        std::uint32_t(&query)[kBlocks][4] = queries[kHoldsQueries ? step : 0];
        if constexpr (!kHoldsQueries) load_query(query, step, from);
#pragma unroll
        for (int key = 0; key < kKeys; key += 16) {
          std::uint32_t fragment[4];
          ptx::ldmatrix(fragment, KeyReader::at(step, at) + key * 2 * kTile.head_size);
#pragma unroll
          for (int block = 0; block < kBlocks; ++block)
#pragma unroll
            for (int j = 0; j < 2; ++j)
              ptx::mma<Element>(reinterpret_cast<float(&)[4]>(scores[block][key / 2 + 4 * j]), query[block], fragment[2 * j],
                                fragment[2 * j + 1]);
        }
      }
  }

  /// Scores become weights. `edge`, `mixed`: KeyWalk's on_edge() and on_mask() of tile n.
  __device__ __forceinline__ void soften(int n, bool edge, bool mixed) {
    if (g.cap_scale != 0.f) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) cap_scores(scores[block], g.cap_scale);
    }
    if constexpr (has_mask(kMasking)) {
      if (g.mask.dtype != DType::boolean)
        apply_mask<Masking::additive>(n, mixed, !edge);
      else if (mixed)
        apply_mask<Masking::boolean>(n, mixed, !edge);
    }
    if (edge) {
      const auto& tile = row_tile();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        mask_edges<kKeys>(scores[block], n * kKeys, RowLimits(g, tile.bounds(g), tile.row + first_row(block)));
    }
    const float scale[2] = {g.scale_log2, g.scale_log2};
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) softmax[block].raise_maximum(scores[block], scale);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) softmax[block].exponentiate_half(scores[block], g.scale_log2);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) softmax[block].rescale(outputs[block]);
  }
  template <Masking kKind>
  __device__ __forceinline__ void apply_mask(int n, bool mixed, bool inside) {
    const auto& tile = row_tile();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const int first = tile.row + first_row(block), rows[2] = {first, first + 8};
      TileMask<kKeys, kKind, false> mask(g, tile, rows, kTile.rows());
      mask.load(g, n, mixed, inside);
      mask.apply(scores[block], g);
    }
  }

  __device__ __forceinline__ void multiply_values(const unsigned char* values) {
    const std::uint32_t at = ptx::shared_address(values) + static_cast<std::uint32_t>(ValueReader().lane_at);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      std::uint32_t weights[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) to_fragment<Element>(weights[block], scores[block], step);
#pragma unroll
      for (int pair = 0; pair < kValueSize / 16; ++pair) {
        std::uint32_t fragment[4];
        ptx::ldmatrix_transposed(fragment, ValueReader::at(pair, at) + step * 16 * 2 * kValueSize);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
#pragma unroll
          for (int j = 0; j < 2; ++j)
            ptx::mma<Element>(reinterpret_cast<float(&)[4]>(outputs[block][8 * pair + 4 * j]), weights[block], fragment[2 * j],
                              fragment[2 * j + 1]);
      }
    }
  }

  /// After the last tile: stores the rows, by way of `memory`, the tile's queries; or the split's partial results.
  __device__ __forceinline__ void finish(unsigned char* memory) {
    const auto& tile = row_tile();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) softmax[block].finish();
    if (tile.in_memory(g)) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        leave_partials(outputs[block], softmax[block].maximum, softmax[block].sum, g, tile, first_row(block));
      return;
    }
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) round_rows(tile, block, warp_memory(memory));
    __syncwarp();
    store_rows(tile, warp_memory(memory));
  }

 private:
  using Output = Swizzle<kValueSize>;

  /// Writes a block's rows, normalised, to the warp's memory, and their log-sum-exp to memory.
  __device__ __forceinline__ void round_rows(const RowTile& tile, int block, unsigned char* rows_memory) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row(block) + 8 * h;
      float maximum = softmax[block].maximum[h], sum = softmax[block].sum[h];
      const float keys = sum, inverse = finish_row(g, tile, tile.row + row, maximum, sum);
      if (g.lse != nullptr && lane % 4 == 0 && row < g.tile_rows) {
        const std::int64_t out = tile.output_row(g, tile.row + row);
        if (out >= 0) g.lse[out] = log_sum(maximum, sum, g.scale);
      }
#pragma unroll
      for (int j = 0; j < kValueSize / 8; ++j) {
        const float* const pair = outputs[block] + 4 * j + 2 * h;
        // 0 if the row sees no key, even if a value is NaN
        const std::uint32_t rounded = keys == 0.f ? 0 : pack_pair<Element>(pair[0] * inverse, pair[1] * inverse);
        *reinterpret_cast<std::uint32_t*>(rows_memory + Output::at(16 * block + 8 * h + lane / 4, j) + 4 * (lane % 4)) = rounded;
      }
    }
  }

  /// Stores the warp's rows from its memory, 16 bytes a lane.
  __device__ __forceinline__ void store_rows(const RowTile& tile, const unsigned char* rows_memory) const {
    constexpr int kPieces = kValueSize / 8;  // of a row
    const int lane = static_cast<int>(threadIdx.x) % 32, in_tile = static_cast<int>(threadIdx.x) / 32 * (16 * kBlocks) + lane;
    std::int64_t mine = -1;  // where row `lane` goes
    if (lane < 16 * kBlocks && in_tile < g.tile_rows) mine = tile.output_row(g, tile.row + in_tile);
    if (mine >= 0) mine = g.out_rows.place(mine) * g.dv;
#pragma unroll
    for (int first = 0; first < 16 * kBlocks * kPieces; first += 32) {
      const int i = first + lane, row = i / kPieces, piece = i % kPieces;
      const auto low = __shfl_sync(kFullWarp, static_cast<unsigned>(mine), row);
      const auto high = __shfl_sync(kFullWarp, static_cast<int>(mine >> 32), row);
      const std::int64_t to = static_cast<std::int64_t>(high) << 32 | low;
      if (to < 0 || 8 * piece >= g.dv) continue;
      store_vector(static_cast<std::uint32_t*>(g.out) + (to + 8 * piece) / 2,
                   load_vector<4>(reinterpret_cast<const std::uint32_t*>(rows_memory + Output::at(row, piece))));
    }
  }
};

}  // namespace xgemm::attention
