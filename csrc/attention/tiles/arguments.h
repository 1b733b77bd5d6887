// Arguments of the tensor-core kernel and of its mask classifier.
#pragma once
#include <cuda.h>
#include <vector_types.h>

#include "attention/output_rows.h"
#include "device/dtype.h"
#include "device/index_map.h"

namespace xgemm::attention {

/// An attention mask and its classification by mask_tiles.cuh, per tile of rows by tile of keys.
struct MaskArguments {
  /// Steps from one (outer batch, inner batch, query head, position) to the next: of the mask in elements, and of the index of
  /// a mask tile (outer batch, inner batch, tile head, tile of rows). 0 if the mask is broadcast.
  struct {
    std::int64_t outer, inner, head, row, column;
  } strides;
  struct {
    int outer, inner, head, row;
  } steps;
  const void* values;
  DType dtype;
  bool pairs;              ///< two neighbouring columns may be loaded as one word
  std::uint8_t slot_rows;  ///< additive_tma: rows of the mask for a warpgroup's 64 rows
  int key_tiles;           ///< of a mask tile
  unsigned char* classes;  ///< [mask tile][key tile]: TileClass
  uint2* bits;             ///< bool: [mask tile][key tile][consumer thread]: bit 2 j + c of word h for accumulator 4 j + 2 h + c
};

/// The logit of one more key for each query head, without a value.
struct Sinks {
  const void* values;  ///< null: there are none
  DType dtype;
  std::int64_t outer, inner, head;  ///< steps in elements
};

/// Arguments of mask_tiles.cuh.
struct MaskTilesArguments {
  MaskArguments mask;
  ShortDivider key_tiles;                ///< tiles of keys
  ShortDivider row_tiles, heads, inner;  ///< tiles of rows, tile heads, inner batches: 1 if broadcast
  ShortDivider pack;                     ///< see TileArguments
  int rows, tile_rows;                   ///< packed rows of a tile head
  int sk;
  bool vector;  ///< 16 keys are contiguous and aligned to 16 bytes
};

struct TileArguments {
  /// Query and output: dims (D, group, Sq, inner batch, outer batch), boxes of 64 columns by a tile's rows and by a warp's 16.
  /// Key and value: dims (D, Sk, inner batch, outer batch), boxes of 64 columns by a tile's keys.
  CUtensorMap query, key, value, output;
  /// Steps of the maps' batch dims per batch: 0 if all batches share one tensor.
  struct Steps {
    int inner, outer;
  } query_steps, key_steps, value_steps;
  void* out;  ///< the output for plain stores: (outer, inner, group, Sq, dv), its rows where out_rows says
  OutputRows out_rows;
  float* lse;  ///< contiguous (outer, inner, group, Sq); may be null
  int sq, sk, dv;
  int first, last;    ///< position i sees keys max(0, i + first) to min(sk, i + last) - 1
  float scale;        ///< of the softmax's input: scores; 1 for their sum with an additive mask
  float scale_log2;   ///< that times log2(e)
  float score_scale;  ///< of scores before an additive mask
  float cap_scale;    ///< unless 0, scores become tanh(score * cap_scale); the scales above then apply to the tanh

  // Work (scheduler.cuh). A tile head is the `pack` query heads that share a tile's rows.
  ShortDivider pack;           ///< packed row r is position r / pack of head r % pack
  int tile_rows, row_tiles;    ///< used rows of a tile; tiles of rows per tile head
  ShortDivider section_heads;  ///< tile heads whose keys and values are in L2 together
  ShortDivider section;        ///< their tiles of rows
  ShortDivider tile_heads;     ///< tile heads of a key head
  ShortDivider inner;          ///< inner batches
  ShortDivider splits;         ///< splits of the keys, `split_tiles` tiles of them each
  int split_tiles;
  int first_split;      ///< earlier splits have no key that a row sees
  int items;            ///< tiles of rows times splits
  unsigned* next_item;  ///< counts items that CTAs have taken, zero before and after; null if each CTA has one item

  MaskArguments mask;
  Sinks sinks;

  // Results go through memory (finish.cuh) with several splits, or if TMA cannot store the rows.
  bool through_memory;
  int merge_slices;        ///< warps that merge a row (merge.cuh)
  int partial_rows;        ///< rows per tile in memory
  int partial_columns;     ///< the tile's value_size
  float* partial_outputs;  ///< [tile][split][row][partial_columns], unnormalised
  float2* partial_states;  ///< [tile][split][row]: maximum of the unscaled scores, sum of the weights

  /// The mask with additive_tma: dims (Sk, group, Sq, inner batch, outer batch), size 1 if broadcast; boxes of 64 keys by
  /// slot_rows rows.
  CUtensorMap mask_map;
};

}  // namespace xgemm::attention
