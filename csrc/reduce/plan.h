// Reductions: problem -> kernel, threads a row, split. Pure host code, tested without a GPU through xgemm_plan (docs/reduce.md).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "device/dtype.h"
#include "device/index_map.h"
#include "device/properties.h"

namespace xgemm::reduce {

enum class Kind : std::uint8_t { sum, mean, amax, amin, argmax, argmin, logsumexp };

/// A strided array to be read.
struct Source {
  const void* data;
  DType dtype;
  std::span<const std::int64_t> sizes, strides;
};

/// What a kernel keeps for one output while it reduces.
enum class State : std::uint8_t { sum, maximum, index, logsumexp };
State state_of(Kind kind);
std::size_t state_bytes(State state, DType dtype);

/// Can the kernels read `from` as it is when the result is of dtype `to`? Otherwise the input is converted first.
bool converts_on_load(Kind kind, DType from, DType to);

/// rows: the fastest dim is reduced; 1 to 512 threads a row, or several blocks a row.
/// columns: the fastest dim is kept; a block reduces a tile of neighbouring columns.
enum class Kernel : std::uint8_t { rows, columns };

/// The arguments of both kernels. The order in which one output's elements are added is fixed by `length`, the strides, the dtype
/// and the GPU (columns: and by the number of neighbouring columns); never by how many outputs there are beside it.
struct Plan {
  Kind kind;
  Kernel kernel;
  DType in, out;
  bool vector = false;   ///< 16-byte loads are possible (at any alignment): the innermost stride is 1 and runs are long enough
  bool aligned = false;  ///< every run that starts at a multiple of 16 bytes from the base is itself aligned
  bool pairs = false;    ///< logsumexp: write (max, sum) pairs for softmax instead of their logarithm
  int threads = 0;       ///< a block
  int lanes = 0;         ///< rows: threads that share a row. columns: threads side by side in a tile, each of 16 bytes
  std::int64_t outputs = 0, length = 0;
  std::int64_t columns = 1, column_stride = 0, column_out = 0;  ///< columns: the kept dim that varies fastest
  std::int64_t tiles = 1;                                       ///< columns: tiles side by side
  std::int64_t split = 1, chunk = 0;  ///< blocks an output; rows: 16-byte vectors a block, columns: elements a block
  IndexMap kept;                      ///< output (columns: group of `columns` outputs) -> offset in input and output
  IndexMap reduced;                   ///< position 0..length-1 -> offset in input
  std::int64_t blocks = 0;
  std::size_t counter_bytes = 0, workspace_bytes = 0;  ///< counters come first in the workspace and start at zero
};

/// `reduced` has bit d set where dim d is reduced; the output is contiguous over the kept dims in their order. `op` is for messages.
Plan make_plan(const char* op, Kind kind, const Source& source, std::uint64_t reduced, DType out, const DeviceProperties& gpu);

}  // namespace xgemm::reduce
