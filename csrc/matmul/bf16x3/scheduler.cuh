// bf16x3: which tiles and which of their k-blocks a CTA computes (stream-K: a tile's k-blocks may fall to several CTAs).
//
//   The k-blocks of all tiles form one sequence, in units of `granule` blocks, which is divided evenly among the CTAs. So the
//   order of additions depends on the problem and the GPU alone. The fallback takes whole tiles, those of the CTA's list.
#pragma once
#include "matmul/bf16x3/arguments.cuh"

namespace xgemm::matmul::bf16x3 {

/// Element indices of a tile's first row and column of C, and its batch.
struct TileOrigin {
  int row, column, batch;
};

__device__ __forceinline__ TileOrigin tile_origin(const Bf16x3Arguments& g, unsigned tile) {
  // Groups of eight rows of tiles, column by column, so that CTAs in flight share operands in L2.
  constexpr unsigned kGroup = 8;
  if (g.one_row) return {0, static_cast<int>(tile) * kColumns, 0};  // many short tiles: divisions would show
  const unsigned per_batch = g.rows * g.columns, in_batch = tile % per_batch, group = in_batch / (kGroup * g.columns);
  const unsigned in_group = in_batch - group * kGroup * g.columns, height = min(kGroup, g.rows - group * kGroup);
  return {static_cast<int>(group * kGroup + in_group % height) * kRows, static_cast<int>(in_group / height) * kColumns,
          static_cast<int>(tile / per_batch)};
}

/// Walks this CTA's work: for each of its tiles, the blocks from `block` to `end`.
template <Bf16x3Config kConfig>
struct Scheduler {
  static constexpr bool kWhole = kConfig.fallback || kConfig.short_k;
  const Bf16x3Arguments& g;
  unsigned unit, last;  // in the sequence of all tiles' units; fallback: in the list
  unsigned taken;
  int block, end;

  __device__ __forceinline__ Scheduler(const Bf16x3Arguments& arguments, const Fallback& fallback) : g(arguments) {
    unit = kConfig.fallback ? 0 : first_unit(blockIdx.x);
    last = kConfig.fallback ? fallback.tiles : first_unit(blockIdx.x + 1);
    open();
  }
  __device__ __forceinline__ bool done() const { return unit >= last; }
  /// Does this CTA compute all blocks of the tile?
  __device__ __forceinline__ bool whole() const { return kWhole || taken == g.units; }
  __device__ __forceinline__ bool last_tile() const { return unit + taken >= last; }
  __device__ __forceinline__ void advance() {
    unit += taken;
    if (!done()) open();
  }
  __device__ __forceinline__ TileOrigin origin() const {
    if constexpr (kConfig.fallback) return done() ? TileOrigin{0, 0, 0} : tile_origin(g, g.list[unit * gridDim.x + blockIdx.x]);
    return tile_origin(g, kWhole || g.units == 1 ? unit : unit / g.units);
  }
  /// The CTA that computes a unit.
  __device__ __forceinline__ unsigned owner(unsigned of) const {
    return static_cast<unsigned>((static_cast<std::uint64_t>(of + 1) * gridDim.x - 1) / g.all_units);
  }

 private:
  __device__ __forceinline__ unsigned first_unit(unsigned cta) const {
    return static_cast<unsigned>(static_cast<std::uint64_t>(cta) * g.all_units / gridDim.x);
  }
  __device__ __forceinline__ void open() {
    if constexpr (kWhole) {
      taken = 1, block = 0, end = static_cast<int>(g.blocks);
      return;
    }
    const unsigned within = g.units == 1 ? 0 : unit % g.units;
    taken = min(g.units - within, last - unit);
    block = static_cast<int>(within * g.granule);
    end = static_cast<int>(min(g.blocks, (within + taken) * g.granule));
  }
};

}  // namespace xgemm::matmul::bf16x3
