// scaled_masked_softmax: problem -> kernel and its arguments. Pure host code.
#pragma once
#include <cstdint>
#include <span>

#include "device/dtype.h"
#include "device/index_map.h"

namespace xgemm::softmax {

/// What is added to scale * x: nothing, values of x's dtype or of fp32, or -inf where a bool is false.
enum class MaskKind : std::uint8_t { none, own, f32, boolean };

/// The problem is [outer, length, columns] with softmax over the middle, all dims of any stride, output contiguous.
/// resident: rows of stride 1 and of whole 16-byte vectors, a mask of stride 1 or none, and the row's logits fit the registers of
/// a block: one read of x. Otherwise a block passes three times over a tile of columns.
struct Masked {
  DType dtype = DType::f32;
  MaskKind mask = MaskKind::none;
  bool resident = false;
  bool aligned = false;  ///< resident: from aligned bases every row of x and mask starts at a multiple of a vector
  int threads = 0, lanes = 0,
      steps = 0;  ///< lanes: resident: threads a row; otherwise columns of a tile. steps: vectors a thread
  std::int64_t outer = 1, length = 1, columns = 1, tiles = 1, blocks = 0;
  std::int64_t input_stride = 0, mask_stride = 0;  ///< along the length
  double scale = 1;
  IndexMap outer_map{}, column_map{};  ///< to offsets in the input and (`out`) in the mask
};

/// `mask_strides` are those of the mask broadcast to `sizes`.
Masked make_masked(const char* op, DType dtype, MaskKind mask, double scale, std::span<const std::int64_t> sizes,
                   std::span<const std::int64_t> strides, std::span<const std::int64_t> mask_strides, std::int64_t dim);

}  // namespace xgemm::softmax
