// What the host hands to the tensor-core kernel.
#pragma once
#include <cuda.h>

#include "device/index_map.h"

namespace xgemm::attention {

struct WgmmaArguments {
  /// Query and output: dims (D, group, Sq, inner batch, outer batch), boxes of 64 columns by a CTA's rows and by a warp's 16
  /// rows. Key and value: dims (D, Sk, inner batch, outer batch), boxes of 64 columns by a tile's keys.
  CUtensorMap query, key, value, output;
  /// Steps of the maps' batch dims from one batch to the next: 0 where one tensor serves all.
  struct Steps {
    int inner, outer;
  } query_steps, key_steps, value_steps;
  float* lse;  ///< contiguous (outer, inner, group, Sq); may be null
  int sq, sk;
  int packed;               ///< query heads whose rows a tile interleaves: row r is position r / packed of head r % packed
  int first, last;          ///< position i sees keys max(0, i + first) to min(sk, i + last) - 1
  float scale, scale_log2;  ///< of the scores; that times log2(e)
  int items, row_tiles;     ///< tiles of rows in all, and of a head (of `packed` heads)
  ShortDivider pack;        ///< by `packed`
  ShortDivider section;     ///< items whose keys and values are in L2 together: row_tiles * section_heads
  ShortDivider section_heads;
  ShortDivider tile_heads;  ///< tiles of a key head that differ by query head: group / packed
  ShortDivider inner;       ///< inner batches
};

}  // namespace xgemm::attention
