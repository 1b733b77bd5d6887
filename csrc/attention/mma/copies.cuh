// Copies queries, keys or values of a tile to swizzled shared memory, by cp.async of 16 bytes.
//
// A row of the tile is a row of the operand, with zeros past its columns and after the last position or key. Swizzled so that the
// eight rows that one ldmatrix reads are in different banks.
#pragma once
#include "attention/mma/mask.cuh"
#include "device/ptx/cp_async.cuh"

namespace xgemm::attention {

/// The 16-byte piece c of row r is at index c ^ of_row(r) of the row.
template <int kColumns>
struct Swizzle {
  static constexpr int kRowBytes = 2 * kColumns;
  static constexpr int kPieces = kColumns % 64 == 0 ? 8 : 4;  ///< that change places: 128 bytes, all banks, or 64
  static_assert(kColumns % 32 == 0);
  static __device__ __forceinline__ int of_row(int row) { return kPieces == 8 ? row % 8 : row / 2 % 4; }
  /// The offset of a piece.
  static __device__ __forceinline__ int at(int row, int piece) { return row * kRowBytes + 16 * (piece ^ of_row(row)); }
};

template <int kKeys, int kColumns, int kThreads = kMmaThreads>
struct TileCopies {
  static constexpr int kRowBytes = 2 * kColumns;
  static constexpr int kAcross = kColumns % 128 == 0 ? 16 : Swizzle<kColumns>::kPieces;  // threads side by side in a row
  static constexpr int kDown = kThreads / kAcross;                                       // rows at a time
  static_assert(kDown % 8 == 0, "a thread's pieces are swizzled alike");

  const MmaArguments::Operand& x;
  const int& columns;
  const char* mine;  ///< this thread's first piece of the head's first keys

  __device__ __forceinline__ TileCopies(const TileArguments&, const MmaArguments::Operand& operand, const RowTile& tile,
                                        const int& columns)
      : x(operand),
        columns(columns),
        mine(static_cast<const char*>(x.data) + 2 * (tile.offset_in(x) + row() * x.row) + 16 * piece()) {}
  static __device__ __forceinline__ int row() { return thread_index() / kAcross; }
  static __device__ __forceinline__ int piece() { return thread_index() % kAcross; }

  /// Issues the copies of keys from `first` on, of what lies `further` bytes behind the operand; `sk`: all keys.
  __device__ __forceinline__ void issue(unsigned char* slot, int first, int sk, std::int64_t further = 0) const {
    const int left = sk - first - row(), right = columns / 8 - piece();
    issue_pieces(slot, first, further, [&](int down, int across) { return down < left && across < right; });
  }
  /// The same with fewer instructions where all exist.
  __device__ __forceinline__ void issue_whole_or_not(unsigned char* slot, int first, int sk, std::int64_t further = 0) const {
    if (first + kKeys <= sk && columns == kColumns)
      issue_pieces(slot, first, further, [](int, int) { return true; });
    else
      issue(slot, first, sk, further);
  }

 private:
  template <class Exists>
  __device__ __forceinline__ void issue_pieces(unsigned char* slot, int first, std::int64_t further, const Exists& exists) const {
    std::int64_t row_bytes = 2 * x.row;
    slot += Swizzle<kColumns>::at(row(), piece());
    asm volatile("" : "+l"(row_bytes));  // else its multiples are kept in registers through the main loop
    const char* from = mine + further + first * row_bytes;
#pragma unroll
    for (int down = 0; down < kKeys; down += kDown) {
#pragma unroll
      for (int across = 0; across < kColumns / 8; across += kAcross)
        cp_async_or_zeros(slot + down * kRowBytes + 16 * across, from + 16 * across, exists(down, across));
      from += kDown * row_bytes;
    }
  }
};

/// The same of a sequence's keys or values, which may lie in pages. Eight threads share a row: 128 bytes at a time are whole
/// cache lines, and a thread has few rows to find.
template <int kKeys, int kColumns, int kThreads = kMmaThreads>
struct SequenceCopies {
  static constexpr int kPieces = kColumns / 8, kAcross = 8, kDown = kThreads / kAcross;  // kDown rows at a time
  static constexpr bool kHolds = kColumns <= 128 && kThreads == kMmaThreads;  ///< has registers for whole tiles' copies
  static_assert(kDown % 8 == 0 && kKeys % kDown == 0);

  const MmaArguments::Operand& x;
  const int& columns;
  const Sequences& sequences;
  const SequenceTile& tile;  ///< in shared memory
  // What the copies of whole tiles have in common: the sequence's entries of the table; the thread's piece of row row() of page
  // 0 or, without a table, of the sequence; its place in a slot; do whole tiles have all columns, and kDown keys one page?
  const int* entries;
  const char* mine;
  int in_slot, regular;

  __device__ __forceinline__ SequenceCopies(const WithSequences<MmaArguments>& g, const MmaArguments::Operand& operand,
                                            const SequenceTile& of_tile, const int& columns)
      : x(operand), columns(columns), sequences(g.sequences), tile(of_tile) {
    if constexpr (kHolds) {
      const bool paged = sequences.table != nullptr;
      entries = paged ? sequences.table + tile.sequence * sequences.table_step : nullptr;
      const std::int64_t first = paged ? 0 : tile.sequence * x.outer + tile.key_row * x.row;
      mine = static_cast<const char*>(x.data) + 2 * (first + tile.inner * x.inner + row() * x.row) + 16 * piece();
      in_slot = Swizzle<kColumns>::at(row(), piece());
      regular = columns == kColumns && x.narrow && (!paged || sequences.page_rows.divisor % kDown == 0);
      asm volatile("" : "+l"(mine), "+r"(in_slot), "+r"(regular));  // else parts of them are computed again for each tile
    }
  }
  static __device__ __forceinline__ int row() { return thread_index() / kAcross; }
  static __device__ __forceinline__ int piece() { return thread_index() % kAcross; }

  /// Where a key lies. `page`: of the cache; negative: it is zeros.
  struct Place {
    int page, row;
  };
  __device__ __forceinline__ Place find(int key, int sk) const {
    Place place{tile.sequence, tile.key_row + key};
    if (sequences.table != nullptr) {
      const int index = sequences.page_rows.divide(key);
      place.row = key - index * static_cast<int>(sequences.page_rows.divisor);
      place.page = key < sk ? __ldg(sequences.table + tile.sequence * sequences.table_step + index) : -1;
    }
    if (key >= sk || static_cast<unsigned>(place.page) >= static_cast<unsigned>(sequences.pages)) place.page = -1;
    return place;
  }
  /// Issues the thread's copies of a row of the tile.
  __device__ __forceinline__ void issue_row(unsigned char* slot, int of_tile, const Place& place) const {
    const char* const from =
        static_cast<const char*>(x.data) + 2 * (tile.inner * x.inner + place.page * x.outer + place.row * x.row) + 16 * piece();
    const int right = place.page >= 0 ? columns / 8 - piece() : 0;
#pragma unroll
    for (int across = 0; across < kPieces; across += kAcross)
      if (kPieces % kAcross == 0 || across + piece() < kPieces)
        cp_async_or_zeros(slot + Swizzle<kColumns>::at(of_tile, across + piece()), from + 16 * across, across < right);
  }
  __device__ __forceinline__ void issue_whole_or_not(unsigned char* slot, int first, int sk) const {
#pragma unroll 1
    for (int of_tile = row(); of_tile < kKeys; of_tile += kDown) issue_row(slot, of_tile, find(first + of_tile, sk));
  }

  /// Of a regular operand: where every kDown-th key of a whole tile lies, from `first` on; without a table, all in page 0.
  __device__ __forceinline__ void find_whole(Place (&places)[kKeys / kDown], int first) const {
    const int rows = static_cast<int>(sequences.page_rows.divisor);
    int index = entries == nullptr ? 0 : sequences.page_rows.divide(first), of_page = first - index * rows;
#pragma unroll
    for (int i = 0; i < kKeys / kDown; ++i) {
      places[i] = {entries == nullptr ? 0 : __ldg(entries + index), of_page};
      of_page += kDown;
      if (of_page == rows) of_page = 0, ++index;
    }
  }
  /// Issues the thread's copies of such a tile.
  __device__ __forceinline__ void issue_whole(unsigned char* slot, const Place (&places)[kKeys / kDown]) const {
    slot += in_slot;
#pragma unroll
    for (int i = 0; i < kKeys / kDown; ++i) {
      const auto page = static_cast<std::uint32_t>(places[i].page), of_page = static_cast<std::uint32_t>(places[i].row);
      const char* const from = mine + std::uint64_t{page} * x.outer_bytes + std::uint64_t{of_page} * x.row_bytes;
#pragma unroll
      for (int across = 0; across < kPieces; across += kAcross)
        cp_async_or_zeros(slot + i * kDown * 2 * kColumns + 16 * across, from + 16 * across,
                          page < static_cast<unsigned>(sequences.pages));
    }
  }
};

/// Issues the copies of keys and values from `first` on.
template <int kKeys, int kColumns, int kValueColumns>
__device__ __forceinline__ void issue_both(const TileCopies<kKeys, kColumns>& keys,
                                           const TileCopies<kKeys, kValueColumns>& values, unsigned char* slot,
                                           unsigned char* value_slot, int first, int sk) {
  keys.issue(slot, first, sk), values.issue(value_slot, first, sk);
}
template <int kKeys, int kColumns, int kValueColumns>
__device__ __forceinline__ void issue_both(const SequenceCopies<kKeys, kColumns>& keys,
                                           const SequenceCopies<kKeys, kValueColumns>& values, unsigned char* slot,
                                           unsigned char* value_slot, int first, int sk) {
  using Keys = SequenceCopies<kKeys, kColumns>;
  constexpr int kDown = Keys::kDown;
  if constexpr (Keys::kHolds)
    if (first + kKeys <= sk && keys.regular != 0 && values.regular != 0) {
      typename Keys::Place places[kKeys / kDown];
      keys.find_whole(places, first);
      keys.issue_whole(slot, places), values.issue_whole(value_slot, places);
      return;
    }
#pragma unroll 1
  for (int of_tile = keys.row(); of_tile < kKeys; of_tile += kDown) {
    const auto place = keys.find(first + of_tile, sk);
    keys.issue_row(slot, of_tile, place), values.issue_row(value_slot, of_tile, place);
  }
}

/// Issues the copies of a tile's queries, or of what lies `further` bytes behind them, swizzled, with zeros after the last
/// position.
template <int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void copy_queries(const TileArguments& g, const MmaArguments::Operand& x, int columns,
                                             const auto& tile, unsigned char* to, std::int64_t further = 0) {
  using S = Swizzle<kColumns>;
  constexpr int kAcross = S::kPieces, kDown = kThreads / kAcross;
  const int piece = static_cast<int>(threadIdx.x) % kAcross, first = static_cast<int>(threadIdx.x) / kAcross;
  const char* const base = static_cast<const char*>(x.data) + further + 2 * tile.offset_in(x) + 16 * piece;
  const int positions = tile.bounds(g).sq;
#pragma unroll 4
  for (int row = first; row < kRows; row += kDown) {
    const int packed = tile.row + row, position = g.pack.divide(packed);
    const int head = tile.head + packed - position * static_cast<int>(g.pack.divisor);
    const char* const from = base + 2 * (head * x.head + min(position, positions - 1) * x.row);
#pragma unroll
    for (int block = 0; block < kColumns / 8; block += kAcross)
      cp_async_or_zeros(to + S::at(row, piece) + 16 * block, from + 16 * block,
                        position < positions && 8 * (block + piece) < columns);
  }
}

/// The copies of an instance.
template <Masking kMasking, int kKeys, int kColumns, int kThreads = kMmaThreads>
using CopiesOf = std::conditional_t<kMasking == Masking::sequences, SequenceCopies<kKeys, kColumns, kThreads>,
                                    TileCopies<kKeys, kColumns, kThreads>>;

/// A lane's offset for an ldmatrix of 16 rows at pieces 2 i and 2 i + 1 of such a tile: four 8 x 8 matrices, in order of rows
/// or of pieces. at(i): from the tile's beginning; at(i, base): an address, if lane_at has been added to `base`.
template <int kColumns, bool kRowsFirst>
struct TileReader {
  int lane_at;
  __device__ __forceinline__ TileReader() {
    const int lane = thread_index() % 32, matrix = lane / 8;
    const int lower = kRowsFirst ? matrix % 2 : matrix / 2, right = kRowsFirst ? matrix / 2 : matrix % 2;
    lane_at = Swizzle<kColumns>::at(8 * lower + lane % 8, right);
  }
  __device__ __forceinline__ int at(int i) const { return static_cast<int>(at(i, static_cast<std::uint32_t>(lane_at))); }
  static __device__ __forceinline__ std::uint32_t at(int i, std::uint32_t base) {
    constexpr int kSteps = Swizzle<kColumns>::kPieces / 2;
    return (base ^ 32 * (i % kSteps)) + 32 * kSteps * (i / kSteps);
  }
};

}  // namespace xgemm::attention
