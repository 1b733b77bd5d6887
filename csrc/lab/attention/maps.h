// Host side of steps 05 to 07: the tensor maps.
#pragma once
#include "device/tensor_map.h"
#include "lab/attention/attention.h"

namespace xgemm::lab::attention {

/// Fills the problem's three maps. Rows of a head beyond s read as zeros. False if the driver makes none.
inline bool make_maps(Problem& p) {
  const auto make = [&](CUtensorMap& map, const void* data, int rows) {
    return make_tensor_map(map, {.data = data,
                                 .dtype = DType::bf16,
                                 .sizes = {p.d, p.s, p.heads},
                                 .strides = {p.d, std::int64_t{p.s} * p.d},
                                 .box = {kBoxColumns, rows},
                                 .swizzle_bytes = 128});
  };
  return make(p.map_query, p.query, kQueryRows) && make(p.map_key, p.key, kKeyRows) && make(p.map_value, p.value, kKeyRows);
}

}  // namespace xgemm::lab::attention
