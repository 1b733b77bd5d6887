// The tiles of the decoding kernel (kernel.cu), a row of named constants each. Host and device code.
#pragma once
#include <array>
#include <cstdint>

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
  static constexpr int kRowBytes = 32;  ///< of a DecodeRow (rows.cuh)
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

}  // namespace xgemm::attention
