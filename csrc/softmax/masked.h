// scaled_masked_softmax: problem -> kernel and its arguments. Pure host code.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/dtype.h"
#include "device/index_map.h"

namespace xgemm::softmax {

/// The kind of mask: none, added values of x's dtype or of fp32, or a bool whose false adds -inf.
enum class MaskKind : std::uint8_t { none, own, f32, boolean };

/// rows: one read of x; rows of stride 1 and whole 16-byte vectors, a mask of stride 1 or none, logits in a CTA's registers.
/// elements: one read of x; other rows whose logits fit in registers. any: longer rows, or columns > 1; a CTA passes three
/// times over a tile.
enum class MaskedKernel : std::uint8_t { rows, elements, any };

/// The problem is [outer, length, columns] with softmax over the middle, all dims of any stride, output contiguous.
struct Masked {
  DType dtype = DType::f32;
  MaskKind mask = MaskKind::none;
  MaskedKernel kernel = MaskedKernel::any;
  bool aligned = false;  ///< rows: from aligned bases every row of x and mask starts at a multiple of a vector
  int threads = 0, lanes = 0,
      steps = 0;  ///< lanes: of a row; any: columns of a tile. steps: vectors or elements per lane
  std::int64_t outer = 1, length = 1, columns = 1, tiles = 1, blocks = 0;
  std::int64_t input_stride = 0, mask_stride = 0;  ///< along the length
  double scale = 1;
  IndexMap outer_map{}, column_map{};  ///< to offsets in the input and (`out`) in the mask
};

/// `mask_strides`: strides of the mask after it is broadcast to `sizes`. `batch_invariant`: the order of additions depends on the
/// length and dtype alone, if `dim` is the last one.
Masked make_masked(const char* op, DType dtype, MaskKind mask, double scale, std::span<const std::int64_t> sizes,
                   std::span<const std::int64_t> strides, std::span<const std::int64_t> mask_strides, std::int64_t dim,
                   bool batch_invariant = false);

/// The most 16-byte vectors, or elements, of a lane: 16 logits.
constexpr int masked_steps(std::size_t size) { return size == 2 ? 2 : 4; }
constexpr int kElementSteps = 16;

}  // namespace xgemm::softmax
