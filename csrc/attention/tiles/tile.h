// A tile of the tensor-core kernels: rows of queries against keys, and what it needs of an SM. Each family has a table of them.
#pragma once
namespace xgemm::attention {

/// The masks that the kernel is compiled for; edges (causal, window, the last keys) are always included.
enum class Masking {
  edges,
  boolean,       ///< False: the key is not seen
  additive,      ///< added to the scaled scores
  additive_tma,  ///< the same in the queries' dtype, loaded by TMA; chosen by launch.cpp, not by plan.cpp
  sequences      ///< edges, of sequences of different lengths (sequence_tiles.h); chosen by plan_sequences()
};
constexpr bool has_mask(Masking masking) { return masking != Masking::edges && masking != Masking::sequences; }

/// A mask's effect on a tile of rows by keys.
enum TileClass : unsigned char {
  kEmpty,  ///< no row sees a key
  kFull,   ///< as if there were no mask
  kMixed
};

/// The problems that a tile is for, beside its sizes and masks.
enum class Serving {
  any,
  unmasked,
  masked,
  long_full  ///< not causal, more than 1024 rows per key head
};

inline constexpr int kMmaRows = 16;    ///< up to so many rows per key head go to mma.sync (attention/mma)
inline constexpr int kMergeWarps = 8;  ///< of a CTA that merges splits (merge.cuh)

inline constexpr int kItemSlots = 2;  ///< of the ring in which the producer announces items to the consumers

struct Tile {
  int head_size;               ///< largest D; TMA pads with zeros
  int value_size = head_size;  ///< largest Dv
  int consumers;               ///< warpgroups of 64 query rows
  int keys;                    ///< per step of the online softmax
  int query_slots;             ///< tiles of queries in shared memory; outputs are stored through their tile's slot
  int stages;                  ///< tiles of keys, and of values, in shared memory
  int ctas = 1;                ///< on an SM at a time
  Serving serving = Serving::any;
  bool additive = true, others = true;  ///< masks that it is compiled for; an additive one takes registers
  bool sequences = false;               ///< is it compiled for sequences of different lengths?
  double row = 1;                       ///< time of a row relative to the other tile of the same head size
  int row_blocks = 1;                   ///< mma/: 16-row blocks of a warp

  static constexpr int kSharedBytes = 227 * 1024;  ///< the most that a CTA can have
  static constexpr int kBlockBytes = 128;          ///< of a row in one block of 64 columns: the width of the swizzle
  static constexpr int blocks(int columns) { return (columns + 63) / 64; }

  constexpr bool serves(Masking masking) const {
    if (masking == Masking::sequences) return sequences;
    if (serving == Serving::unmasked) return !has_mask(masking);
    if (serving == Serving::masked && !has_mask(masking)) return false;
    if (masking == Masking::additive_tma) return mask_slots(masking) > 0;
    return masking == Masking::additive ? additive : others;
  }
  constexpr int rows() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (consumers + 1); }
  constexpr int query_bytes() const { return rows() * kBlockBytes * blocks(head_size > value_size ? head_size : value_size); }
  constexpr int key_bytes() const { return keys * kBlockBytes * blocks(head_size); }
  constexpr int value_bytes() const { return keys * kBlockBytes * blocks(value_size); }
  constexpr int barriers() const { return 2 * (query_slots + 2 * stages + kItemSlots); }
  /// Slots of each warpgroup for a mask that TMA loads, its 64 rows by a tile of keys: as many as fit, two at most. A tile for
  /// few rows needs its shared memory for keys and values.
  constexpr int mask_slots(Masking masking) const {
    if (masking != Masking::additive_tma || !additive || consumers == 1) return 0;
    const int room = (kSharedBytes / ctas - bytes_without_masks()) / (consumers * (mask_bytes() + 2 * 8));
    return room < 2 ? room : 2;
  }
  /// A slot's blocks of columns are swizzled as the other operands are, or one block with rows of an odd number of 16 bytes, so
  /// that ldmatrix finds eight rows in different banks.
  constexpr bool mask_swizzled() const { return keys % 64 == 0; }
  constexpr int mask_columns() const { return mask_swizzled() ? 64 : keys / 8 % 2 == 0 ? keys + 8 : keys; }  ///< of a block
  constexpr int mask_blocks() const { return mask_swizzled() ? keys / 64 : 1; }
  constexpr int mask_bytes() const { return 64 * 2 * mask_columns() * mask_blocks(); }
  constexpr int shared_bytes(Masking masking) const {
    return bytes_without_masks() + consumers * mask_slots(masking) * (mask_bytes() + 2 * 8);
  }
  constexpr int bytes_without_masks() const {
    return query_slots * query_bytes() + stages * (key_bytes() + value_bytes()) + 8 * barriers() + 4 * kItemSlots;
  }
  // Registers of a thread: 65536 over all threads at launch, then the producer's go to the consumers; one consumer has enough
  // from the start. A producer that reads a mask's classes needs more.
  constexpr bool lends_registers() const { return consumers > 1 || ctas > 1; }
  constexpr int producer_registers(Masking masking) const {
    if (consumers == 3 || (consumers == 2 && masking == Masking::sequences)) return 32;
    return consumers == 2 && masking == Masking::edges ? 24 : 40;
  }
  constexpr int consumer_registers(Masking masking) const {
    return consumers == 3 ? 160 : consumers == 1 ? 216 : masking == Masking::edges ? 240 : 232;
  }
  /// A CTA starts with 65536 registers over all threads, in eights; consumers that ask for more than is left wait for ever.
  constexpr bool registers_suffice(Masking masking) const {
    const int at_launch = 65536 / ctas / threads() / 8 * 8 * (consumers + 1);
    return !lends_registers() || consumers * consumer_registers(masking) + producer_registers(masking) <= at_launch;
  }
};

}  // namespace xgemm::attention
