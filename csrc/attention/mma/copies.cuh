// Copies keys or values of a tile to swizzled shared memory, by cp.async of 16 bytes.
//
// A row of the tile is a row of the operand, with zeros past its columns and after the last key. The 16-byte piece c of row r
// is at index c ^ r % 8, so that the eight rows that one ldmatrix reads are in different banks.
#pragma once
#include "attention/mma/mask.cuh"
#include "device/ptx/cp_async.cuh"

namespace xgemm::attention {

/// The tiles of keys of all splits that a CTA computes.
template <int kKeys, Masking kMasking>
struct SplitWalk {
  RowTile tile;
  const SplitMask<kKeys, kMasking>& mask;
  SplitKeys<kKeys, kMasking> walk;
  int left;  ///< splits after the current one
  __device__ __forceinline__ SplitWalk(const MmaArguments& g, const RowTile& first, const SplitMask<kKeys, kMasking>& mask,
                                       int splits)
      : tile(first), mask(mask), walk(g, first, mask), left(splits - 1) {
    find(g);
  }
  __device__ __forceinline__ bool valid() const { return walk.valid(); }
  __device__ __forceinline__ void next(const MmaArguments& g) {
    walk.next();
    find(g);
  }

 private:
  __device__ __forceinline__ void find(const MmaArguments& g) {
    for (; !walk.valid() && left > 0; --left) {
      ++tile.split;
      walk = SplitKeys<kKeys, kMasking>(g, tile, mask);
    }
  }
};

template <int kKeys, int kColumns>
struct TileCopies {
  static constexpr int kRowBytes = 2 * kColumns;
  static constexpr int kAcross = kColumns < 128 ? kColumns / 8 : 16;  // threads side by side in a row
  static constexpr int kDown = kMmaThreads / kAcross;                 // rows at a time
  static constexpr int kBlocks = kRowBytes / (16 * kAcross);          // times that kAcross threads go into a row
  static_assert(kDown % 8 == 0, "a thread's pieces are swizzled alike");

  const char* head;  ///< the head's first key
  std::int64_t key_bytes;
  int pieces;           ///< of a row
  unsigned row, piece;  ///< this thread's first in a tile
  unsigned to;          ///< its offset in shared memory

  __device__ __forceinline__ TileCopies(const MmaArguments::Operand& x, const RowTile& tile, int columns)
      : head(static_cast<const char*>(x.data) + 2 * (tile.outer * x.outer + tile.inner * x.inner)),
        key_bytes(2 * x.row),
        pieces(columns / 8),
        row(threadIdx.x / kAcross),
        piece(threadIdx.x % kAcross),
        to(row * kRowBytes + 16 * (piece ^ row % 8)) {}

  /// Issues the copies of keys from `first` on; `sk`: all keys.
  __device__ __forceinline__ void issue(unsigned char* slot, int first, int sk) const {
    const char* from = head + (first + static_cast<int>(row)) * key_bytes + 16 * piece;
    const int left = sk - first - static_cast<int>(row), right = pieces - static_cast<int>(piece);
#pragma unroll
    for (int down = 0; down < kKeys; down += kDown) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block)
        cp_async_or_zeros(slot + to + down * kRowBytes + 16 * kAcross * block, from + 16 * kAcross * block,
                          kAcross * block < right && down < left);
      from += kDown * key_bytes;
    }
  }
};

/// A lane's offset for an ldmatrix of 16 rows at pieces 2 i and 2 i + 1 of such a tile: four 8 x 8 matrices, in order of rows
/// or of pieces.
template <int kColumns, bool kRowsFirst>
struct TileReader {
  int lane_at;
  __device__ __forceinline__ TileReader() {
    const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8;
    const int lower = kRowsFirst ? matrix % 2 : matrix / 2, right = kRowsFirst ? matrix / 2 : matrix % 2;
    lane_at = (8 * lower + lane % 8) * (2 * kColumns) + 16 * (right ^ lane % 8);
  }
  __device__ __forceinline__ int at(int i) const { return (lane_at ^ 32 * (i % 4)) + 128 * (i / 4); }
};

}  // namespace xgemm::attention
