// Arguments of the mma.sync kernel.
#pragma once
#include "attention/tiles/arguments.h"
#include "attention/tiles/sequence_tiles.h"

namespace xgemm::attention {

/// As for the wgmma kernel, but operands have strides: the tensor maps are empty.
struct MmaArguments : TileArguments {
  struct Operand {
    const void* data;
    std::int64_t outer, inner, head, row;  ///< strides in elements; `head`: of query heads in their group
    std::uint32_t outer_bytes, row_bytes;  ///< of sequences' keys and values, if `narrow`
    bool narrow;                           ///< these strides have 32 bits
  } queries, keys, values;
  int d;
  bool alone;        ///< one CTA per SM
  bool mask_rows;    ///< a tile's rows have masks of their own
  bool mask_vector;  ///< 16 keys of a mask are contiguous and aligned to 16 bytes
};

}  // namespace xgemm::attention
