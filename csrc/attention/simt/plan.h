// The tile of an attention call on CUDA cores and its splits of rows and keys. Pure host code.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace xgemm::attention {

/// A block is 8 groups of 16 threads; a group owns `thread_rows` query rows, and its threads share each row's keys and columns.
inline constexpr int kThreads = 128, kLanes = 16, kGroups = kThreads / kLanes;

/// Keys after which the online softmax starts again. The splits are merged in order, by one block that goes through all of them
/// or, if that would leave the GPU idle, by a second kernel: the same operations either way. A constant, so that the bits of a
/// row depend on Sk, the head sizes and the dtype alone.
inline constexpr int kSplitKeys = 1024;

/// The constants of one instantiation of simt/tile.cuh.
struct SimtTile {
  bool fp64 = false;  ///< arithmetic and shared memory in fp64; else in fp32, whatever the dtype of the tensors
  int head_size;      ///< largest D and Dv
  int thread_rows;    ///< query rows of a thread
  int keys;           ///< keys of a step of the online softmax; divides kSplitKeys
  int depth;          ///< head dims of a key slab in shared memory
  int blocks;         ///< blocks that are to fit an SM: bounds the registers
  int wide = 0;       ///< largest D, if it is not head_size

  constexpr int rows() const { return thread_rows * kGroups; }
  constexpr int element_bytes() const { return fp64 ? 8 : 4; }
  constexpr int vector() const { return 16 / element_bytes(); }  ///< elements of a 16-byte access

  // Shared memory: query rows, the rows' softmax weights, two slabs of keys or values, and each row's maximum and sum. Rows that
  // neighbouring groups or threads read together are padded by 16 bytes, which spreads them over the banks.
  constexpr int query_size() const { return wide == 0 ? head_size : wide; }
  constexpr int query_stride() const { return query_size() + vector(); }
  constexpr int weight_stride() const { return keys + vector(); }
  constexpr int key_stride() const { return depth + vector(); }
  constexpr int value_rows() const { return keys * depth / head_size; }  ///< keys of a value slab: as many elements as a key slab
  constexpr int slab() const { return keys * key_stride(); }
  constexpr int shared_bytes() const { return (rows() * (query_stride() + weight_stride() + 2) + 2 * slab()) * element_bytes(); }
};

// Rows are many (prefill) or few (decoding): 64 rows make 8 x 8 sums of a thread, which the FMA units need; for a few rows they
// would compute mostly padding. `keys` and `depth` are equal within a head-size class, so both give a row the same bits.
inline constexpr std::array kSimtTiles = {
    SimtTile{.head_size = 32, .thread_rows = 8, .keys = 128, .depth = 32, .blocks = 2},   // 0: small heads: P V not padded to 64
    SimtTile{.head_size = 64, .thread_rows = 8, .keys = 128, .depth = 32, .blocks = 2},   // 1
    SimtTile{.head_size = 128, .thread_rows = 8, .keys = 128, .depth = 32, .blocks = 2},  // 2
    SimtTile{.head_size = 256, .thread_rows = 8, .keys = 64, .depth = 32, .blocks = 2},   // 3: half the keys: registers
    SimtTile{.head_size = 128, .thread_rows = 1, .keys = 128, .depth = 32, .blocks = 3},  // 4: few rows
    SimtTile{.head_size = 256, .thread_rows = 1, .keys = 64, .depth = 32, .blocks = 3},   // 5
    SimtTile{.fp64 = true, .head_size = 64, .thread_rows = 4, .keys = 64, .depth = 16, .blocks = 2},   // 6
    SimtTile{.fp64 = true, .head_size = 256, .thread_rows = 2, .keys = 64, .depth = 16, .blocks = 2},  // 7: registers
    SimtTile{.fp64 = true, .head_size = 256, .thread_rows = 1, .keys = 64, .depth = 16, .blocks = 2},  // 8: few rows
    SimtTile{.head_size = 256, .thread_rows = 2, .keys = 64, .depth = 32, .blocks = 2, .wide = 576},   // 9
    SimtTile{.fp64 = true, .head_size = 256, .thread_rows = 1, .keys = 64, .depth = 16, .blocks = 2, .wide = 576},  // 10
};

/// What the choice depends on.
struct SimtProblem {
  bool fp64 = false;
  std::int64_t batches = 0;                 ///< products of query rows with one key head
  std::int64_t rows = 0;                    ///< query rows of each: Sq times the query heads that share the key head
  std::int64_t key_begin = 0, key_end = 0;  ///< keys that some row sees
  std::int64_t d = 0, dv = 0;
  int sm_count = 0;
};

struct SimtPlan {
  int tile = 0;  ///< index into kSimtTiles
  std::int64_t row_tiles = 0;
  int first_split = 0;    ///< the split of the first key that some row sees
  int splits = 1;         ///< splits of the keys, of kSplitKeys each, from that one on
  bool parallel = false;  ///< a block per split and a merge kernel; else each block walks through all splits
  std::int64_t blocks = 0;
  std::int64_t partials = 0;  ///< sets of partial results kept in the workspace: 0, 1 or `splits`

  const SimtTile& info() const { return kSimtTiles[static_cast<std::size_t>(tile)]; }
  /// Of partial results of so many output rows: outputs, maxima, sums.
  std::int64_t partial_bytes(std::int64_t rows) const {
    return partials * rows * (info().head_size + 2) * info().element_bytes();
  }
};

/// Any problem with at least one row gets a plan.
SimtPlan plan_simt(const SimtProblem& problem);

}  // namespace xgemm::attention
