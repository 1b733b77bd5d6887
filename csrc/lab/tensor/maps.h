// Host side of steps 11 to 13a: the tensor maps.
#pragma once
#include "device/tensor_map.h"
#include "lab/tensor/tensor.h"

namespace xgemm::lab::tensor {

/// Fills the problem's maps. False if the driver makes none.
inline bool make_maps(Problem& p) {
  const auto make = [](CUtensorMap& map, const void* data, int rows, int cols, int box_rows) {
    return make_tensor_map(map, {.data = data,
                                 .dtype = DType::bf16,
                                 .sizes = {cols, rows, 1},
                                 .strides = {cols, std::int64_t{cols} * rows},
                                 .box = {kBoxK, box_rows},
                                 .swizzle_bytes = 128});
  };
  return make(p.map_a, p.a, p.m, p.k, kBoxRows) && make(p.map_b, p.b, p.n, p.k, kBoxRows) &&
         make(p.map_out, p.out, p.m, p.n, kOutBoxRows);
}

}  // namespace xgemm::lab::tensor
