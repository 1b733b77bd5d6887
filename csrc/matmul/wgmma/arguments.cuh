// Compile-time configuration (WgmmaConfig), launch arguments (WgmmaArguments) and shared-memory layout of wgmma/kernel.cuh.
//
// Split-K: a *split* is one of `splits` parts of K. Each is summed from zero, and the splits' sums are added in order. One CTA
// does all splits of a tile; or a cluster does, one CTA per split (*cluster_splits*); or each split is a work item of its own,
// and the sums are added through global memory (*memory_splits*). See wgmma/split_k.cuh.
#pragma once
#include <cuda.h>

#include "device/index_map.h"
#include "device/pipeline.cuh"
#include "device/shared_memory.cuh"
#include "matmul/launch.h"
#include "matmul/split_k/meeting.cuh"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation.
struct WgmmaConfig {
  static constexpr int kRowBytes = 128;  ///< of a slot
  int tile_m;                            ///< rows of C per CTA: 64 or 128, one consumer warpgroup per 64 rows
  int tile_n;                            ///< most columns of C per CTA: 32 (K-major B only), 64, 128 or 256
  int blocks;                            ///< k-blocks per slot
  int stages;                            ///< slots
  bool k_major_a;                        ///< A row-major
  bool k_major_b;                        ///< B column-major
  int group;                             ///< rows of tiles per group: tiles go column by column within a group
  int parts;                             ///< 2: each operand is split into hi and lo
  bool scaled;                           ///< rows of A and columns of B were scaled by powers of two (line_scale.cuh)
  bool gated;                            ///< half of a tile's columns come from b, half from up, both K-major
  constexpr int consumers() const { return tile_m / 64; }
  constexpr int columns() const { return gated ? tile_n / 2 : tile_n; }  ///< of C
  constexpr int threads() const { return 128 * (1 + consumers()); }
  constexpr bool may_multicast() const { return !scaled && !gated; }
  constexpr bool may_split() const { return tile_n <= 128 && !gated; }  ///< wider tiles have no registers left for the sums
  constexpr bool may_narrow() const { return parts == 1 && !gated && tile_n >= 128; }  ///< multiplies a tile's width alone
  constexpr bool may_swap() const { return may_narrow() && !scaled && k_major_b; }     ///< may compute C^T
  constexpr bool may_split_memory() const { return may_multicast(); }
  constexpr bool may_store_direct() const { return may_split_memory() && tile_m == 64; }
  constexpr bool may_fall_back() const { return parts == 2 && !gated; }
  constexpr int loaders() const { return may_multicast() && tile_m == 64 ? 2 : 1; }  ///< warps of warpgroup 0 that load
  constexpr int fillers() const { return 128 - 32 * loaders(); }                     ///< warpgroup 0's other threads
  constexpr bool fills_scales() const { return scaled && !gated; }  ///< fillers copy the scales to shared memory,
  constexpr bool fills_bias() const { return !scaled && !gated; }   ///< or the bias

  // Boxes of the loads, which the host writes in the tensor maps: 64 k or lines, 128 bytes, by so many rows (a K-major A may
  // have fewer).
  constexpr int box_a() const { return k_major_a ? tile_m : blocks * kWgmmaTileK; }
  constexpr int box_b() const { return k_major_b ? columns() : blocks * kWgmmaTileK; }
  constexpr int bytes_a() const { return tile_m * kRowBytes; }  ///< of a k-block
  constexpr int bytes_b() const { return tile_n * kRowBytes; }
  constexpr int piece_bytes() const { return blocks * kWgmmaTileK * kRowBytes; }  ///< of 64 m or n of an MN-major operand
  constexpr int box_c() const { return columns() % 64 == 0 ? 128 : 64; }          ///< bytes per row of a box of C

  // Shared memory: slots, a staging buffer per consumer warp, scales or bias, barriers.
  constexpr int stage_bytes() const { return blocks * parts * (bytes_a() + bytes_b()); }
  constexpr int slots_bytes() const { return stages * stage_bytes(); }
  static constexpr int staging_bytes() { return 4096; }  ///< per consumer warp
  constexpr int input_bytes() const { return fills_scales() ? 4 * (tile_m + tile_n + 4) : fills_bias() ? 4 * tile_n : 0; }
  constexpr int shared_bytes() const {
    return slots_bytes() + 4 * consumers() * staging_bytes() + input_bytes() + stages * Pipeline<1>::kBytes + 5 * 8 +
           kSwizzlePattern;
  }
  constexpr bool fits() const {  ///< A cluster's partial sums are stored in the slots.
    return (!may_split() || (tile_n / 8 + kMaxCluster - 1) * 32 * tile_m <= stages * stage_bytes()) &&
           shared_bytes() <= 227 * 1024 && stage_bytes() % 1024 == 0 &&
           (!gated || (k_major_a && k_major_b && columns() * kRowBytes % 1024 == 0));
  }
};

/// The nested structs only group names.
struct WgmmaArguments {
  CUtensorMap a, b;                ///< dims (contiguous, other, batch * parts); boxes as WgmmaConfig says
  CUtensorMap out;                 ///< dims (n, m, batch); boxes of 128 bytes by 16 rows
  Problem problem;                 ///< sizes and the epilogue's operands; its a and b are not read
  int batch_step_a, batch_step_b;  ///< 0: all batches share one matrix
  struct {
    int rows, columns, count;   ///< tiles of C: per batch (multicast: pairs of tiles), and in all
    int multicast;              ///< rows of B's boxes that one CTA of a pair loads for both; 0: no multicast
    int last_row, last_column;  ///< largest first row and column of a tile
    int width;                  ///< columns of C per tile: WgmmaConfig::columns(), or fewer
  } tiles;
  int slot_bytes;  ///< that TMA loads into one slot
  struct {
    int blocks, chunk_blocks, split_blocks;  ///< k-blocks of K, of a sum of small products, of a split
    int splits, cluster_splits;
  } k;
  struct {
    ShortDivider per_batch, per_group;  ///< tiles of a batch, of a full group of rows
    ShortDivider last_rows;             ///< rows of the last group
    ShortDivider at_a_time;             ///< items that run at a time: the grid's clusters
    int items;                          ///< tiles, or splits of them, in all
    int shift;                          ///< log2 of the CTAs that share an item or a pair of tiles
  } schedule;
  float alpha;
  int memory_splits;  ///< splits of a tile that are work items: `splits` or 1
  Meeting* meetings;  ///< memory_splits: one per tile
  float* partials;    ///< memory_splits: [item][tile_m][tile_n]
  bool swapped;       ///< `problem` is C^T = B^T A^T (epilogue/store_swapped.cuh)
  bool direct;        ///< stores C from registers, two columns at a time: for tile widths that `out`'s boxes do not divide
  struct {
    const char* b;      ///< K-major
    std::int64_t step;  ///< bytes from one column of B to the next
    int bytes;          ///< per column; 0: none
  } prefetch;
  const LineStats *lines_a, *lines_b;  ///< scaled: [batch or one][line]
  FailedProduct fallback;              ///< WgmmaConfig::may_fall_back()
  bool fills_bias;                     ///< WgmmaConfig::fills_bias(), and there is one
  bool boxes;                          ///< C goes through shared memory, 16 rows by 128 bytes at a time: by TMA,
  bool ragged;                         ///< or, if its rows are unaligned, in aligned pieces of 16 bytes
  struct {                             // gated; `problem`, whose epilogue runs on the gated result, has no bias and activation
    CUtensorMap up;                    ///< the other weight
    const LineStats* lines_up;
    Operand bias_gate, bias_up;
    Activation activation;
  } gate;
};

namespace wgmma_detail {

/// For consumers only; kSwappedBarrier + i is consumer i's own.
enum NamedBarrier : int { kStaggerBarrier = 1, kSplitBarrier, kSwappedBarrier };

/// Does the fallback compute the whole product? It does if all lines of an operand failed the split in two parts.
__device__ __forceinline__ bool falls_back(const WgmmaArguments& g) {
  if (!g.fallback.lines) return false;
  const uint2 lines = __ldcg(reinterpret_cast<const uint2*>(g.fallback.lines));
  return lines.x == g.fallback.lines_a || lines.y == g.fallback.lines_b;  // of_a, of_b
}

}  // namespace wgmma_detail
}  // namespace xgemm::matmul
