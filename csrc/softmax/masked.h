// scaled_masked_softmax: problem -> kernel and its arguments. Pure host code.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/dtype.h"
#include "device/index_map.h"

namespace xgemm::softmax {

/// What is added to scale * x: nothing, values of x's dtype or of fp32, or -inf where a bool is false.
enum class MaskKind : std::uint8_t { none, own, f32, boolean };

/// One read of x: rows: of stride 1 and of whole 16-byte vectors, a mask of stride 1 or none, the row's logits in the registers
/// of a block. elements: other rows whose logits fit. any: what is longer, or of columns > 1: a block passes three times over a
/// tile.
enum class MaskedKernel : std::uint8_t { rows, elements, any };

/// The problem is [outer, length, columns] with softmax over the middle, all dims of any stride, output contiguous.
struct Masked {
  DType dtype = DType::f32;
  MaskKind mask = MaskKind::none;
  MaskedKernel kernel = MaskedKernel::any;
  bool aligned = false;  ///< rows: from aligned bases every row of x and mask starts at a multiple of a vector
  int threads = 0, lanes = 0,
      steps = 0;  ///< lanes: of a row; any: columns of a tile. steps: vectors or elements a lane
  std::int64_t outer = 1, length = 1, columns = 1, tiles = 1, blocks = 0;
  std::int64_t input_stride = 0, mask_stride = 0;  ///< along the length
  double scale = 1;
  IndexMap outer_map{}, column_map{};  ///< to offsets in the input and (`out`) in the mask
};

/// `mask_strides` are those of the mask broadcast to `sizes`.
Masked make_masked(const char* op, DType dtype, MaskKind mask, double scale, std::span<const std::int64_t> sizes,
                   std::span<const std::int64_t> strides, std::span<const std::int64_t> mask_strides, std::int64_t dim);

/// 16-byte vectors or elements of a lane at most: 16 logits.
constexpr int masked_steps(std::size_t size) { return size == 2 ? 2 : 4; }
constexpr int kElementSteps = 16;

}  // namespace xgemm::softmax
