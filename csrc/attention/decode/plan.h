// The tiles of the decoding kernel (kernel.cu), and its plan, if it takes the problem. Pure host code; kernels read constants.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "attention/simt/plan.h"

namespace xgemm::attention {

inline constexpr int kDecodeWarps = 4, kDecodeThreads = 32 * kDecodeWarps;
inline constexpr int kDecodeSlotBytes = 8192;  ///< the keys, or the values, of one step of a warp
inline constexpr int kDecodeKeyLanes = 8;      ///< keys that a warp multiplies at a time; four lanes share a key

/// The constants of one instantiation of kernel.cu.
struct DecodeTile {
  int head_size;  ///< largest D and Dv
  int rows;       ///< packed query rows
  int ctas;       ///< that fit an SM of 228 KB: bounds the registers

  /// Keys of one step of a warp's online softmax.
  constexpr int keys() const { return kDecodeSlotBytes / (4 * head_size); }
  constexpr int slots_bytes() const { return 2 * kDecodeSlotBytes * kDecodeWarps; }
  constexpr int query_bytes() const { return 4 * rows * head_size; }
  /// Weights of a warp's step, and the factors by which its outputs are rescaled.
  constexpr int weight_bytes() const { return 4 * rows * (keys() + 1); }
  static constexpr int kRowBytes = 32;  ///< of a DecodeRow (warp.cuh)
  constexpr int shared_bytes() const { return slots_bytes() + query_bytes() + kDecodeWarps * weight_bytes() + rows * kRowBytes; }
};

/// Order of additions: `keys()` depends on the head size alone, so a row's bits do not depend on `rows`.
inline constexpr std::array kDecodeTiles = {
    DecodeTile{.head_size = 64, .rows = 4, .ctas = 3},   DecodeTile{.head_size = 64, .rows = 8, .ctas = 3},
    DecodeTile{.head_size = 64, .rows = 16, .ctas = 2},  DecodeTile{.head_size = 128, .rows = 4, .ctas = 3},
    DecodeTile{.head_size = 128, .rows = 8, .ctas = 3},  DecodeTile{.head_size = 128, .rows = 16, .ctas = 2},
    DecodeTile{.head_size = 256, .rows = 4, .ctas = 3},  DecodeTile{.head_size = 256, .rows = 8, .ctas = 3},
    DecodeTile{.head_size = 256, .rows = 16, .ctas = 2},
};

/// More rows per key head take several tiles of the most rows, each of which reads all keys and values; beyond this many,
/// simt/tile.cuh's 64 rows are faster.
inline constexpr int kDecodeMostRows = 48;

/// Keys of a split: a function of Sk alone, since it decides the order of additions. 8 key heads of one sequence give 128 CTAs
/// at 4096 and at 8192 keys, 1024 at 65536.
constexpr int decode_split_keys(std::int64_t sk) { return sk <= 4096 ? 256 : sk <= 65536 ? 512 : 1024; }

struct DecodePlan {
  int tile = 0;  ///< index into kDecodeTiles
  std::int64_t row_tiles = 0;
  int split_keys = 0;
  int first_split = 0;  ///< the split of the first key that some row sees
  int splits = 1;       ///< from that one on
  std::int64_t ctas = 0;
  std::int64_t partial_bytes = 0;  ///< of partial results in memory: 0 for one split

  const DecodeTile& info() const { return kDecodeTiles[static_cast<std::size_t>(tile)]; }
};

/// Nothing for fp64, for more than kDecodeMostRows rows, without keys, head dims or value columns, or if `shared_bytes` per CTA
/// are too few. `sk`: all keys, seen or not.
std::optional<DecodePlan> plan_decode(const SimtProblem& problem, std::int64_t sk, std::int64_t shared_bytes);

}  // namespace xgemm::attention
