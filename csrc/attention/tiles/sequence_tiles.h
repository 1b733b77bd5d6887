// Sequences of different lengths, as kernels compiled for Masking::sequences see them.
#pragma once
#include <cstdint>

#include "device/index_map.h"

namespace xgemm::attention {

/// Where sequences lie: all pointers are to int32 on the device. Kernels clamp what they read there: neither lengths nor a table
/// lead out of bounds.
struct Sequences {
  int count = 0;
  /// Sequence i's queries are the packed rows [offsets[i], offsets[i + 1]); null: each has max_q, one batch of the query.
  const int* query_offsets = nullptr;
  /// The same of packed keys; null: keys lie in a cache of pages.
  const int* key_offsets = nullptr;
  /// Keys of a sequence, without appended ones; null: all of its packed keys, or of its pages.
  const int* key_lengths = nullptr;
  /// The page of row r of sequence i is table[i * table_step + r / page_rows]; null: sequence i has page i.
  const int* table = nullptr;
  std::int64_t table_step = 0;
  ShortDivider page_rows = {};
  int pages = 0;              ///< of the cache: the keys and values of an entry outside [0, pages) are zeros
  int appended = 0;           ///< new keys of each sequence, which its cache holds behind the others
  int rows = 0;               ///< of the packed query, or max_q
  int key_rows = 0;           ///< of all packed keys, or of a sequence's pages
  int max_q = 0, max_k = 0;   ///< no sequence has more
  int left = -1, right = -1;  ///< the window around query i's diagonal, key i + keys - queries; negative: no limit
};

/// A tile of rows of a sequence against a split of its keys.
struct alignas(16) SequenceItem {
  int sequence;
  int row;                 ///< first packed row
  int split, splits;       ///< of the keys that the tile's rows see; no splits: there is no such item
  int sq, sk;              ///< the sequence's
  int query_row, key_row;  ///< of the packed query and keys: the sequence's first
};

/// Most sequences whose keys each CTA divides into splits itself, without a list.
inline constexpr int kDividedSequences = 128;

/// Which items there are: those of all heads of an entry are adjacent.
struct SequenceSchedule {
  const SequenceItem* list = nullptr;  ///< [entry], then their number, made by sequence_list.cu; null: divide_sequences()
  int entries = 0;
  ShortDivider heads = {};  ///< tile heads in all
  int least_tiles = 0;      ///< tiles of keys of a split, at least; 0: keys are not split
  ShortDivider tile_keys = {};
  float readers = 0;        ///< no sequence is split if none has more than its share of the work among so many CTAs
  std::int64_t splits = 0;  ///< of all sequences together; one more for each tile of rows may come of rounding up
};

/// The arguments of a kernel of Masking::sequences.
template <class Base>
struct WithSequences : Base {
  Sequences sequences;
  SequenceSchedule schedule;
};

}  // namespace xgemm::attention
