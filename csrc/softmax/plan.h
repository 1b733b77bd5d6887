// softmax: problem -> kernel, threads, cluster. Pure host code, tested without a GPU.
#pragma once
#include "reduce/plan.h"

namespace xgemm::softmax {

/// With one read and one write: rows: in registers of 1 to 32 lanes or a CTA. shared: in shared memory of a warp, a CTA or a
/// cluster (sm_90). columns: in shared memory of a CTA or a cluster; short_columns: in registers of a thread. odd_rows and
/// tiny_rows: short rows that are not whole 16-byte vectors, in registers; tiny_rows one element an access. With two
/// reads: two_pass: longer rows; the reduction's (max, sum) pairs, then a pass that divides. single: one element per row,
/// contiguous.
enum class Kernel : std::uint8_t { rows, columns, two_pass, shared, odd_rows, tiny_rows, single, short_columns };

/// The problem is [outer, length, columns] with softmax over the middle; columns is 1 for a softmax over the fastest dim. The
/// order of additions is fixed by length, dtype and GPU (two_pass: and by the number of columns), never by `outer`.
struct Plan {
  DType in = DType::f32, out = DType::f32;
  bool log = false;
  Kernel kernel = Kernel::rows;
  bool aligned = false;  ///< every row of the input lies at a multiple of 16 bytes from the base
  int threads = 0, lanes = 0, cluster = 1;
  int team = 0, items = 0;  ///< columns: threads of a block that share a tile, tiles per block (one in a cluster)
  int cell = 0;             ///< columns: positions per thread
  std::int64_t outer = 1, length = 1, columns = 1;
  std::int64_t length_stride = 1;  ///< of the input; the columns' stride is 1
  std::int64_t tiles = 1;          ///< columns: tiles side by side; two_pass: threads along the fastest dim
  std::int64_t chunk = 0;          ///< a block's share of a row: shared: 16-byte vectors; columns: positions
  std::int64_t blocks = 0;
  std::int64_t last = 0;           ///< columns: offset of the input's last element
  Divider by_tiles{}, by_cells{};  ///< columns and two_pass: tiles; two_pass: cells of the length
  IndexMap kept{};                 ///< outer -> offset in the input
  reduce::Plan statistics{};       ///< two_pass
  int steps = 0;                   ///< rows, odd_rows: 16-byte vectors per thread; tiny_rows: the most elements
  bool evenly_spaced = false;      ///< tiny_rows: one stride, which 31 bits hold, as they do `outer`
  std::size_t statistics_bytes = 0, workspace_bytes = 0;  ///< the pairs come first in the workspace
};

/// Can the kernels read this dtype and layout? Otherwise the input is first copied to a contiguous array of the output's dtype.
bool reads_directly(const reduce::Source& source, std::int64_t dim, DType out);

Plan make_plan(const char* op, bool log, const reduce::Source& source, std::int64_t dim, DType out, const DeviceProperties& gpu);

/// The most 16-byte vectors of a thread: in rows, and in short rows, whose kernel is smaller.
constexpr int kRowSteps = 4, kShortSteps = 2;
/// odd_rows: the most 16-byte blocks of a thread, threads per CTA, CTAs per SM.
constexpr int kOddSteps = 5, kOddThreads = 128, kOddBlocks = 8;
/// tiny_rows: threads per CTA, the most elements of a thread (twice as many where a warp has 64 partial sums of a row).
constexpr int kTinyThreads = 128, kTinyElements = kOddSteps;
/// shared: threads of a CTA that holds a part of a row, of one that holds a row which a warp could, and of one whose warps hold a
/// row each.
constexpr int kBlockThreads = 256, kTeamThreads = 128, kShortRowThreads = 128;
/// columns: positions of a thread (more if 16 CTAs cannot hold the column), the most threads of a CTA, those of a CTA with
/// several tiles, the most 16-byte vectors side by side.
constexpr int kCell = 16, kMaxCell = 48, kColumnThreads = 256, kSmallColumnThreads = 128, kColumnLanes = 8;
/// short_columns: threads of a CTA, the most positions.
constexpr int kShortColumnThreads = 128, kShortPositions = 8;
/// single: threads of a CTA, 16-byte vectors of a thread.
constexpr int kSingleThreads = 256, kSingleSteps = 2;
/// two_pass: 16-byte pieces of one thread.
constexpr int kPieces = 8;

}  // namespace xgemm::softmax
