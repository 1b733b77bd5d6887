// Tensor maps of operands, and the first lines of their edge tiles: host side of the kernels that load by TMA.
#pragma once
#include <climits>

#include "device/tensor_map.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

/// The memory in which the offsets of an operand's copy and statistics count.
inline unsigned char* memory_of(const TensorOperand& x, const Problem& p, unsigned char* workspace) {
  return x.prepared ? static_cast<unsigned char*>(const_cast<void*>(p.prepared_b)) : workspace;
}

/// The map of `operand`, or of its copy, by boxes of box0 by box1, swizzled as wide as a box (64 or 128 bytes). False: the driver
/// refused it.
inline bool make_operand_map(CUtensorMap& map, const Problem& p, const Operand& operand, const TensorOperand& x,
                             unsigned char* workspace, DType dtype, int box0, int box1, int parts = 1, bool tf32 = false) {
  return make_tensor_map(map, {.data = x.copied ? memory_of(x, p, workspace) + x.copy : operand.data,
                               .dtype = dtype,
                               .sizes = {x.inner, x.other, x.batches * parts},
                               .strides = {x.ld, x.plane},
                               .box = {box0, box1},
                               .swizzle_bytes = box0 * static_cast<int>(size_of(dtype)),
                               .tf32 = tf32});
}

/// The largest first line of a tile, if edge tiles `overlap` the tiles before them.
inline int last_tile(bool overlap, std::int64_t lines, std::int64_t tile) {
  return overlap && lines >= tile ? static_cast<int>(lines - tile) : INT_MAX;
}

}  // namespace xgemm::matmul
