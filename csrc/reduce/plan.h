// Reductions: problem -> kernel and its arguments. Pure host code, tested without a GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "device/dtype.h"
#include "device/index_map.h"
#include "device/properties.h"

namespace xgemm::reduce {

inline constexpr int kMaxRank = 64;  ///< of an input: torch's own limit for reductions

/// mean_loss: of cross_entropy's losses.
enum class Kind : std::uint8_t { sum, mean, amax, amin, argmax, argmin, logsumexp, cross_entropy, mean_loss };

/// A strided array to be read.
struct Source {
  const void* data;
  DType dtype;
  std::span<const std::int64_t> sizes, strides;
};

/// What a kernel keeps for one output during the reduction.
enum class State : std::uint8_t { sum, maximum, index, logsumexp, cross_entropy, mean_loss };
State state_of(Kind kind);
std::size_t state_bytes(State state, DType dtype);

/// Can the kernels, and softmax's, read `from` directly if elements are reduced as `to`, a floating dtype? Else it is converted.
bool converts_on_load(DType from, DType to);

/// Do the reduced dims, in logical order, make rows of stride 1? The order of additions then depends on the row's length alone.
bool has_dense_rows(const Source& source, std::uint64_t reduced);
inline bool is_dense(const Source& source) { return has_dense_rows(source, ~std::uint64_t{0}); }

/// Arguments of cross_entropy.
struct Loss {
  const std::int64_t* target = nullptr;  ///< one class per output, in the output's order
  std::int64_t ignore_index = -100;
  double smoothing = 0;
  const void* means = nullptr;  ///< with label smoothing each output's mean logit, as losses are computed: fp32, or fp64 for fp64
  float ignored = 0;            ///< the loss of an ignored target: -0 if the mean leaves it out
};

struct Problem {
  Kind kind;
  Source source;
  std::uint64_t reduced;  ///< bit d: dim d is reduced. The output is contiguous over the other dims in their order
  DType out;
  Loss loss{};
  bool pairs = false;            ///< logsumexp: (max, sum) pairs for softmax instead of their logarithm
  bool batch_invariant = false;  ///< the order of additions depends on the row's length, dtype and GPU alone; rows of stride 1
};

/// 16-byte loads that a thread of the kernels for rows and for columns keeps in flight: a step.
inline constexpr int kUnroll = 4;
/// The most 16-byte vectors of a split of a row: four steps of a warp. (Fewer in few rows, more in the longest ones.)
inline constexpr std::int64_t kSplitVectors = 512;
/// The most states that a CTA of the row kernels holds in shared memory.
inline constexpr std::int64_t kMaxStates = 512;
/// Elements that a thread of the kernels for elements and for short columns loads at once and adds as a tree.
inline constexpr int kTree = 8;
/// Threads of the largest CTA of the kernel for elements.
inline constexpr int kElementThreads = 256;
/// Of the kernel for packed groups: threads of a CTA, and elements that it keeps.
inline constexpr int kPackedThreads = 256, kPackedElements = 4096;
/// Threads of the largest CTA of the kernel for short columns, given the bytes that a thread loads at once.
constexpr int most_short_column_threads(std::size_t bytes) { return bytes <= 4 ? 512 : 128; }
/// Threads of a CTA of the column kernel, given a thread's bytes per column and columns: more leave fewer partial results.
constexpr int column_threads(std::size_t part, std::size_t width) { return part * width <= 32 ? 512 : 256; }
/// The most positions of a CTA of the column kernel for argmax: of 16 bits, value and position share a 32-bit integer.
inline constexpr std::int64_t kKeyPositions = 1 << 16, kPartPositions = 1 << 30;

/// The arguments that all kernels have, but for index maps.
struct Arguments {
  Kind kind = Kind::sum;
  DType in = DType::f32, out = DType::f32;
  bool pairs = false;
  Loss loss{};
  std::int64_t outputs = 0, length = 0;
  std::int64_t last = 0;       ///< offset of the input's last element
  std::uint32_t fill[4] = {};  ///< 16 bytes of elements that change no result
  int threads = 0;             ///< of a CTA
  std::int64_t ctas = 0;
};

/// A constructor, because `Reduction{arguments}` would clear the maps' unused dims.
struct Reduction : Arguments {
  IndexMap kept;     ///< output (columns: group of neighbouring columns) -> offset in input and output
  IndexMap reduced;  ///< position 0..length-1 -> offset in input
  explicit Reduction(const Arguments& arguments) : Arguments(arguments) {}
};

/// One element per output.
struct CopyPlan : Reduction {
  using Reduction::Reduction;
};

/// The fastest dim is reduced. A short row is one split, of 1 to 32 lanes. A longer one is divided into splits of a warp each,
/// whose states are joined in order, whichever warps and CTAs computed them.
struct RowPlan : Reduction {
  using Reduction::Reduction;
  bool vector = false;              ///< 16-byte loads at any alignment: runs of stride 1, long enough
  int lanes = 0;                    ///< threads that share a split
  std::int64_t vectors = 0;         ///< 16-byte vectors of a run
  std::int64_t full = 0;            ///< those of them that are whole
  std::int64_t run = 0;             ///< elements of a run: a row, or one of the pieces of stride 1 that a row consists of
  std::int64_t splits_per_run = 0;  ///< 0 if the row is one run
  std::int64_t split_vectors = 0;
  std::int64_t splits = 1;   ///< of a row
  std::int64_t per_cta = 1;  ///< splits, or rows of one split, that a CTA takes
  std::int64_t ctas_per_row = 1;
  int cluster = 1;       ///< CTAs of a row that join states in the first one's shared memory (sm_90), else 1
  bool grouped = false;  ///< a CTA joins its splits first
};

/// Short rows whose elements are not neighbours, and small tiles of columns, one element at a time.
struct ElementPlan : Reduction {
  using Reduction::Reduction;
  int lanes = 0;  ///< threads of a row
  int rows = 0;   ///< of a CTA
};

/// Dense groups of few columns and positions, many of them: a CTA reads some as one piece of memory.
struct PackedPlan : Reduction {
  using Reduction::Reduction;
  ShortDivider by_columns{};  ///< of a group
  int groups = 0;             ///< of a CTA
  int lanes = 0;              ///< threads that share a column
};

/// A thread, or a few, reduce a column or a vector of neighbouring columns of few positions.
struct ShortColumnPlan : Reduction {
  using Reduction::Reduction;
  int width = 1;         ///< columns that a thread reads at once: 16 bytes, or one
  int lanes = 0;         ///< threads side by side
  int teams = 1;         ///< threads that share a column
  int result_bytes = 0;  ///< of an output
};

/// The fastest dim is kept: a CTA reduces one split of a tile of neighbouring columns. Folded: several neighbouring columns
/// belong to one output (a run of an inner reduced dim, or several short positions side by side) and are joined at the end.
struct ColumnPlan : Reduction {
  using Reduction::Reduction;
  bool vector = false;         ///< 16-byte loads at any alignment: neighbouring columns have stride 1
  bool aligned = false;        ///< whole vectors at multiples of 16 bytes from the base, one reduced dim
  bool blocks_loaded = false;  ///< loads are aligned 16-byte blocks
  int lanes = 0;               ///< threads side by side
  int span = 0;                ///< 16-byte vectors of a tile: one less than lanes if a tile starts at any address
  int tile = 0;                ///< columns of a tile
  std::int64_t tiles = 1;      ///< side by side
  std::int64_t columns = 1;    ///< of all tiles
  std::int64_t column_stride = 0, column_out = 0;
  std::int64_t positions = 0;  ///< elements of a column
  std::int64_t run = 1;        ///< folded: neighbouring columns of one output
  int repeat = 1;              ///< folded: neighbouring positions that are side by side as columns
  std::int64_t cut = 0;        ///< columns in bounds in the last position
  int fold_lanes = 0;          ///< threads that join one output's columns; 0: not folded
  int outputs_of_tile = 0;
  std::int64_t column_outputs = 0;  ///< outputs of all tiles of a group
  int results = 0;                  ///< states of a split: outputs of a tile, rounded up to vectors
  int result_lanes = 0;             ///< threads side by side that read them
  std::int64_t split_positions = 0;
  std::int64_t splits = 1;  ///< of a column, a CTA each
  bool early = false;       ///< few CTAs, which may begin while the previous kernel ends
};

struct Plan {
  std::variant<CopyPlan, RowPlan, ElementPlan, ShortColumnPlan, ColumnPlan, PackedPlan> kernel;
  std::size_t counter_bytes = 0, workspace_bytes = 0;  ///< counters come first in the workspace and start at zero
};

inline const Reduction& reduction_of(const Plan& plan) {
  return std::visit([](const Reduction& reduction) -> const Reduction& { return reduction; }, plan.kernel);
}

/// `op` is for messages.
Plan make_plan(const char* op, const Problem& problem, const DeviceProperties& gpu);

/// Logical position -> offset in an array (and, `out`, in a second one of the same sizes), and the number of positions.
struct ContiguousMap {
  IndexMap map;
  std::int64_t count;
};
ContiguousMap contiguous_map(const char* op, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                             std::span<const std::int64_t> out = {});

}  // namespace xgemm::reduce
