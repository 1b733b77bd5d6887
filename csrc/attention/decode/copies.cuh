// One warp's copies of a step's keys, or values, to its slot in shared memory, by cp.async.
//
// A row of the slot is a row of the operand, with zeros past its columns and from key `end` on. With kSwizzle, the 16-byte
// piece c of an odd row is at index c ^ 4: eight lanes that read four neighbouring pieces of two neighbouring rows then read
// different banks.
#pragma once
#include "attention/arguments.h"
#include "attention/decode/plan.h"
#include "device/ptx/cp_async.cuh"

namespace xgemm::attention {

template <DecodeTile kTile, bool kSwizzle>
struct StepCopies {
  static constexpr int kPieces = kTile.head_size / 4;
  static constexpr int kAcross = kPieces < 32 ? kPieces : 32;  // lanes side by side in a row
  static constexpr int kDown = 32 / kAcross;                   // rows at a time
  static constexpr int kBlocks = kPieces / kAcross;            // times that kAcross lanes go into a row

  const Operand& operand;
  const float* head;  ///< the head's key 0
  int columns, row, piece;

  __device__ __forceinline__ StepCopies(const Operand& operand, std::int64_t at, int columns)
      : operand(operand),
        head(static_cast<const float*>(operand.data) + at),
        columns(columns),
        row(static_cast<int>(threadIdx.x) % 32 / kAcross),
        piece(static_cast<int>(threadIdx.x) % kAcross) {}

  static __device__ __forceinline__ int swizzled(int piece, int row) { return kSwizzle ? piece ^ (row % 2 * 4) : piece; }

  /// Issues the copies of keys from `first` on; those from `end` on are zeros.
  __device__ __forceinline__ void issue(float* slot, int first, int end) const {
    if (!operand.vector) return issue_elements(slot, first, end);
    const float* from = head + (first + row) * operand.row + 4 * piece;
    if (columns == kTile.head_size && first + kTile.keys() <= end) {
#pragma unroll
      for (int down = 0; down < kTile.keys(); down += kDown, from += kDown * operand.row)
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) cp_async<16>(place(slot, down, block), from + 4 * kAcross * block, 16);
    } else {
#pragma unroll 2
      for (int down = 0; down < kTile.keys(); down += kDown, from += kDown * operand.row)
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          const int bytes = first + row + down < end ? 4 * columns - 16 * (piece + kAcross * block) : 0;
          cp_async<16>(place(slot, down, block), from + 4 * kAcross * block, min(max(bytes, 0), 16));
        }
    }
  }

 private:
  __device__ __forceinline__ float* place(float* slot, int down, int block) const {
    return slot + (row + down) * kTile.head_size + 4 * (swizzled(piece, row + down) + kAcross * block);
  }
  /// Copies single elements: rows are unaligned or columns not adjacent.
  __device__ __forceinline__ void issue_elements(float* slot, int first, int end) const {
#pragma unroll 1
    for (int row = 0; row < kTile.keys(); ++row)
#pragma unroll 1
      for (int column = static_cast<int>(threadIdx.x) % 32; column < kTile.head_size; column += 32) {
        const bool exists = first + row < end && column < columns;
        cp_async<4>(slot + row * kTile.head_size + 4 * swizzled(column / 4, row) + column % 4,
                    exists ? head + (first + row) * operand.row + column * operand.column : head, exists ? 4 : 0);
      }
  }
};

}  // namespace xgemm::attention
