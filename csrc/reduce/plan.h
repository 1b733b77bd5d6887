// Reductions: problem -> kernel, threads per row, split. Pure host code, tested without a GPU.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/dtype.h"
#include "device/index_map.h"
#include "device/properties.h"

namespace xgemm::reduce {

inline constexpr int kMaxRank = 64;  ///< of an input: torch's own limit for reductions

/// smooth_cross_entropy: with label smoothing, which keeps one sum more. mean_loss: of cross_entropy's losses.
enum class Kind : std::uint8_t {
  sum,
  mean,
  amax,
  amin,
  argmax,
  argmin,
  logsumexp,
  cross_entropy,
  smooth_cross_entropy,
  mean_loss
};

/// A strided array to be read.
struct Source {
  const void* data;
  DType dtype;
  std::span<const std::int64_t> sizes, strides;
};

/// What a kernel keeps for one output during the reduction.
enum class State : std::uint8_t { sum, maximum, index, logsumexp, cross_entropy, smooth_cross_entropy, mean_loss };
State state_of(Kind kind);
std::size_t state_bytes(State state, DType dtype);

/// Can the kernels read `from` directly if the result is of dtype `to`? Otherwise the input is converted first.
bool converts_on_load(Kind kind, DType from, DType to);

/// rows: the fastest dim is reduced. A short row is one strip of 1 to 32 lanes. A longer one is divided into strips of a warp
/// each, whose states are joined in order, whichever warps and CTAs computed them. columns: the fastest dim is kept; a CTA
/// reduces a tile of neighbouring columns. Folded columns: several neighbouring columns belong to one output and are joined at
/// the end. short_columns: a thread or a few reduce a column, or a vector of them. elements: short rows whose elements are not
/// neighbours, and small tiles of columns. copy: one element per output. row_steps: few rows of up to 64 KiB, with lanes of
/// their own for each step of a strip.
enum class Kernel : std::uint8_t { rows, columns, elements, copy, short_columns, row_steps };

/// Arguments of cross_entropy.
struct Loss {
  const std::int64_t* target = nullptr;  ///< one class per output, in the output's order
  std::int64_t ignore_index = -100;
  double smoothing = 0;
  float ignored = 0;  ///< the loss of an ignored target: -0 if the mean leaves it out
};

/// The most states that a block of the row kernel holds in shared memory.
inline constexpr std::int64_t kMaxStates = 512;

/// Threads of a CTA of the column kernel, given the bytes that a thread keeps per column and its number of columns: more
/// threads leave fewer partial results.
constexpr int column_threads(std::size_t part, std::size_t width) { return part * width <= 32 ? 512 : 256; }

/// 16-byte loads that a thread of the kernels for rows and for columns keeps in flight: a step.
inline constexpr int kUnroll = 4;
/// 16-byte vectors of a strip, which a warp reads step by step; steps of the longest row of row_steps.
inline constexpr std::int64_t kStrip = 512, kMostRowSteps = 32;
/// Positions that a thread of the kernel for short columns loads at once and adds as a tree.
inline constexpr int kShortColumnTree = 8;
/// Elements that a lane of the kernel for single elements loads at once and adds as a tree; threads of its largest CTA.
inline constexpr int kElementTree = 8, kElementThreads = 256;
/// Threads of its largest CTA, given the bytes that a thread loads at once.
constexpr int most_short_column_threads(std::size_t bytes) { return bytes <= 4 ? 512 : bytes == 8 ? 256 : 128; }
/// Larger elements are as fast one at a time; smaller ones stay with the column kernel.
constexpr bool takes_column_vectors(std::size_t element_bytes) { return element_bytes == 2 || element_bytes == 4; }

/// The most positions of a CTA of the column kernel for argmax: for elements of up to 16 bits, value and position share a
/// 32-bit integer.
inline constexpr std::int64_t kKeyPositions = 1 << 16, kPartPositions = 1 << 30;

/// The arguments of all kernels. The order in which one output's elements are added is fixed by `length`, the strides, the dtype
/// and the GPU (columns: and by the number of neighbouring columns); never by how many outputs there are beside it.
struct Plan {
  Kind kind = Kind::sum;
  Kernel kernel = Kernel::rows;
  DType in = DType::f32, out = DType::f32;
  bool vector = false;   ///< 16-byte loads are possible (at any alignment): the innermost stride is 1 and runs are long enough;
                         ///< short_columns: and aligned, a vector of columns a thread
  bool aligned = false;  ///< columns: whole vectors at multiples of 16 bytes from the base, one reduced dim
  bool blocks_loaded = false;     ///< columns: loads are aligned 16-byte blocks
  std::uint8_t result_bytes = 0;  ///< short_columns: of an output
  Loss loss{};
  bool pairs = false;  ///< logsumexp: write (max, sum) pairs for softmax instead of their logarithm
  int threads = 0;     ///< per block
  int lanes = 0;       ///< rows: threads that share a strip. columns, short_columns: threads side by side in a tile
  int width = 1;       ///< short_columns: columns that a thread reads at once: 16 bytes, 8 of 16-bit elements, or one
  std::int64_t outputs = 0, length = 0;
  std::int64_t vectors = 0, full = 0;  ///< rows: 16-byte vectors of a row, and those of them that are whole and without gaps
  std::int64_t columns = 1, column_stride = 0, column_out = 0;  ///< columns: the kept dim that varies fastest
  int span = 0;                ///< columns: 16-byte vectors of a tile: one less than lanes if a tile starts at any address
  std::int64_t tiles = 1;      ///< columns: tiles side by side
  std::int64_t positions = 0;  ///< columns: elements of a column
  int tile = 0;                ///< columns: columns of a tile
  int repeat = 1;              ///< columns: neighbouring positions that are side by side as columns; 1: not folded by positions
  std::int64_t cut = 0;        ///< columns: columns in bounds in the last position
  std::int64_t column_outputs = 0;    ///< columns: outputs of all tiles of a group
  int outputs_of_tile = 0;            ///< columns
  int results = 0, result_lanes = 0;  ///< columns: states of a part; lanes that read them
  int fold_lanes = 0;                 ///< columns: threads that join one output's columns; 0: not folded
  std::int64_t run = 0;               ///< rows: elements of a run; columns: neighbouring columns of one output
  std::int64_t pieces = 0;            ///< rows: strips per run if a row has several runs, else 0
  std::int64_t last = 0;              ///< offset of the last element
  std::int64_t chunk = 0;             ///< rows: 16-byte vectors per strip; columns: positions per part
  std::int64_t strips = 1;            ///< rows: strips per row; columns: parts per column; short_columns: states of a
                                      ///< column that meet in shared memory, 1: a thread reduces it alone
  std::int64_t per_block = 1;         ///< strips (parts), or rows of one strip, that a block takes
  std::int64_t split = 1;             ///< blocks per output
  bool early = false;                 ///< columns: few blocks, which may begin while the previous kernel ends
  bool bulk = false;                  ///< rows: many short 16-bit rows, by bulk copies to shared memory (sm_90)
  int cluster = 1;       ///< rows: blocks per output that combine states in the first one's shared memory (sm_90), else 1
  bool grouped = false;  ///< rows: a block joins its strips first; then per_block follows from the row's length
  IndexMap kept{};       ///< output (columns: group of `columns` outputs) -> offset in input and output
  IndexMap reduced{};    ///< position 0..length-1 -> offset in input
  std::int64_t blocks = 0;
  std::uint32_t fill[4] = {};                          ///< 16 bytes of elements that change no result
  std::size_t counter_bytes = 0, workspace_bytes = 0;  ///< counters come first in the workspace and start at zero
};

/// `reduced` has bit d set if dim d is reduced; the output is contiguous over the kept dims in their order. `op` is for
/// messages.
Plan make_plan(const char* op, Kind kind, const Source& source, std::uint64_t reduced, DType out, const DeviceProperties& gpu);

/// Logical position -> offset in an array (and, `out`, in a second one of the same sizes), and the number of positions.
struct ContiguousMap {
  IndexMap map;
  std::int64_t count;
};
ContiguousMap contiguous_map(const char* op, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                             std::span<const std::int64_t> out = {});

}  // namespace xgemm::reduce
