// softmax and scaled_masked_softmax: problem -> kernel, threads, cluster. Pure host code, tested without a GPU.
#pragma once
#include <optional>

#include "reduce/plan.h"

namespace xgemm::softmax {

/// With one read and one write: rows: in registers of 1 to 32 lanes or a CTA. shared: in shared memory of a warp, a CTA or a
/// cluster (sm_90). columns: in shared memory of a CTA or a cluster. odd_rows: short rows that are not whole 16-byte vectors, in
/// registers. elements: few elements, or such rows, in registers, one element an access. With two reads: two_pass: longer rows;
/// the reduction's (max, sum) pairs, then a pass that divides.
enum class Kernel : std::uint8_t { rows, columns, two_pass, shared, odd_rows, elements };

/// What kernels read: [outer, length, columns] with softmax over the middle; columns is 1 for a softmax over the fastest dim.
struct Arguments {
  DType in = DType::f32, out = DType::f32;
  bool log = false;
  Kernel kernel = Kernel::rows;
  bool aligned = false;  ///< every row of the input lies at a multiple of 16 bytes from the base
  int threads = 0, lanes = 0, cluster = 1;
  int team = 0, items = 0;  ///< columns: threads of a block that share a tile, tiles per block (one in a cluster)
  int cell = 0;             ///< columns: positions per thread
  int beside = 1;           ///< elements: columns of neighbouring threads
  int packed = 0;           ///< elements: rows of a CTA in shared memory, where the addresses allow it
  std::int64_t outer = 1, length = 1, columns = 1;
  std::int64_t length_stride = 1;  ///< of the input; the columns' stride is 1
  std::int64_t tiles = 1;          ///< columns: tiles side by side; two_pass: threads along the fastest dim
  std::int64_t chunk = 0;          ///< a block's share of a row: shared: 16-byte vectors; columns: positions
  std::int64_t blocks = 0;
  std::int64_t last = 0;           ///< columns: offset of the input's last element
  Divider by_tiles{}, by_cells{};  ///< columns and two_pass: tiles; two_pass: cells of the length
  IndexMap kept{};                 ///< outer -> offset in the input
  int steps = 0;                   ///< rows, odd_rows: 16-byte vectors per thread; elements: the most elements
};

struct Plan : Arguments {
  std::optional<reduce::Plan> statistics;  ///< two_pass
};

/// Can the kernels read this layout? Otherwise the input is first copied to a contiguous array of the output's dtype.
bool reads_directly(const reduce::Source& source, std::int64_t dim);

/// Are these evenly spaced rows of stride 1, dims behind `dim` all of size 1? What batch invariance asks for.
bool has_dense_rows(const char* op, const reduce::Source& source, std::int64_t dim);

/// `batch_invariant`: the order of additions depends on the length, the dtypes and the GPU alone, if has_dense_rows().
Plan make_plan(const char* op, bool log, const reduce::Source& source, std::int64_t dim, DType out, const DeviceProperties& gpu,
               bool batch_invariant = false);

/// rows: 16-byte vectors of a thread; four packed vectors leave twice the rows on an SM that eight do.
constexpr int kRowSteps = 4;
/// short_rows: 16-byte vectors of a thread; four take 0.5 us more of a short launch (64x128, H200).
constexpr int kShortSteps = 2;
constexpr int kOddSteps = 5;          ///< odd_rows: 16-byte blocks of a thread
constexpr int kOddThreads = 128;      ///< odd_rows: threads of a CTA
constexpr int kOddBlocks = 8;         ///< odd_rows: CTAs that an SM holds, 64 registers a thread
constexpr int kElementThreads = 128;  ///< elements: threads of a CTA whose warps share no column
/// elements: elements of a thread; twice as many of a column that takes more than a warp otherwise.
constexpr int kElements = 5;
/// elements: many short rows side by side: threads of a CTA, and the bytes that it holds: each thread has a row.
constexpr int kPackedThreads = 256, kPackedBytes = 16 << 10;
/// elements: threads of the largest CTA, as registers allow for input elements of `bytes`.
constexpr int most_element_threads(std::size_t bytes) { return bytes == 8 ? 512 : 1024; }
constexpr int kBlockThreads = 256;     ///< shared: threads of a CTA that holds a row or a part of it
constexpr int kShortRowThreads = 128;  ///< shared: threads of a CTA whose warps hold a row each
constexpr int kCell = 16;              ///< columns: positions of a thread
constexpr int kMaxCell = 48;           ///< columns: the same of 16-bit elements where 16 CTAs could not hold the column otherwise
constexpr int kColumnThreads = 256;    ///< columns: threads of the largest CTA; three of 64 KB fit an SM
constexpr int kSmallColumnThreads = 128;  ///< columns: threads of a CTA with several tiles
/// columns: 16-byte vectors side by side, 128 bytes; 64 take as long on an H200, 32 nearly twice as long.
constexpr int kColumnLanes = 8;
constexpr int kApplyVectors = 8;  ///< two_pass: 16-byte vectors of a thread of the second pass

// ---- scaled_masked_softmax ----

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
  bool aligned = false;                   ///< rows: from aligned bases every row of x and mask starts at a multiple of a vector
  int threads = 0, lanes = 0, steps = 0;  ///< lanes: of a row; any: columns of a tile. steps: vectors or elements per lane
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
