// What the host hands to the tensor-core kernel.
#pragma once
#include <cuda.h>
#include <vector_types.h>

#include "device/dtype.h"
#include "device/index_map.h"

namespace xgemm::attention {

/// An attention mask and what mask_tiles.cuh has found out about it, a tile of rows by a tile of keys at a time.
struct WgmmaMask {
  /// Steps from one (outer batch, inner batch, query head, position) to the next: of the mask in elements, and of the index of a
  /// mask tile (outer batch, inner batch, tile head, tile of rows). 0 where the mask is broadcast.
  struct {
    std::int64_t outer, inner, head, row, column;
  } strides;
  struct {
    int outer, inner, head, row;
  } steps;
  const void* values;
  DType dtype;
  bool pairs;              ///< two neighbouring columns may be loaded as one word
  std::uint8_t slot_rows;  ///< additive_tma: so many rows of the mask serve a warpgroup's 64 rows
  int key_tiles;           ///< of a mask tile
  unsigned char* classes;  ///< [mask tile][key tile]: TileClass
  uint2* bits;             ///< bool: [mask tile][key tile][consumer thread]: bit 2 j + c of word h for accumulator 4 j + 2 h + c
};

/// The logit of one more key for each query head, without a value.
struct WgmmaSinks {
  const void* values;  ///< null: there are none
  DType dtype;
  std::int64_t outer, inner, head;  ///< steps in elements
};

/// What mask_tiles.cuh is given.
struct MaskTilesArguments {
  WgmmaMask mask;
  int heads, row_tiles, inner;  ///< sizes of the mask's tile heads, tiles of rows, inner batches: 1 where broadcast
  int rows, pack, tile_rows;    ///< packed rows of a tile head; see WgmmaArguments
  int sk;
  bool vector;  ///< 16 keys are aligned to 16 bytes, in one piece
};

struct WgmmaArguments {
  /// Query and output: dims (D, group, Sq, inner batch, outer batch), boxes of 64 columns by a tile's rows and by a warp's 16.
  /// Key and value: dims (D, Sk, inner batch, outer batch), boxes of 64 columns by a tile's keys.
  CUtensorMap query, key, value, output;
  /// Steps of the maps' batch dims from one batch to the next: 0 where one tensor serves all.
  struct Steps {
    int inner, outer;
  } query_steps, key_steps, value_steps;
  void* out;   ///< the output again: contiguous (outer, inner, group, Sq, dv)
  float* lse;  ///< contiguous (outer, inner, group, Sq); may be null
  int sq, sk, dv;
  int first, last;    ///< position i sees keys max(0, i + first) to min(sk, i + last) - 1
  float scale;        ///< of what the softmax takes: scores, or (1) their sum with an additive mask
  float scale_log2;   ///< that times log2(e), for scores
  float score_scale;  ///< of scores before an additive mask
  float cap_scale;    ///< unless 0, scores become tanh(score * cap_scale), and the scales above are those of that

  // Work (scheduler.cuh). A tile head is as many query heads as share a tile's rows: `pack` of them.
  ShortDivider pack;           ///< packed row r is position r / pack of head r % pack
  int tile_rows, row_tiles;    ///< rows of a tile that are used; tiles of rows of a tile head
  ShortDivider section_heads;  ///< tile heads whose keys and values are in L2 together
  ShortDivider section;        ///< their tiles of rows
  ShortDivider tile_heads;     ///< tile heads of a key head
  ShortDivider inner;          ///< inner batches
  ShortDivider splits;         ///< splits of the keys, `split_tiles` tiles of them each
  int split_tiles;
  int first_split;      ///< those before hold no key that a row sees
  int items;            ///< tiles of rows times splits
  unsigned* next_item;  ///< counts those that CTAs have asked for, zero before and after; null where each CTA has one

  WgmmaMask mask;
  WgmmaSinks sinks;

  // Where results meet in memory (splits.cuh): several splits, or rows that TMA cannot store.
  bool through_memory;
  int partial_rows;        ///< rows of a tile that there is room for
  int partial_columns;     ///< the tile's value_size
  float* partial_outputs;  ///< [tile][split][row][partial_columns], unnormalised
  float2* partial_states;  ///< [tile][split][row]: maximum of the unscaled scores, sum of the weights

  /// The mask, if it is additive_tma: dims (Sk, group, Sq, inner batch, outer batch), sizes 1 where it is broadcast; boxes of 64
  /// keys by slot_rows rows.
  CUtensorMap mask_map;
};

}  // namespace xgemm::attention
