// Softmax over columns: rows at any address to shared memory and back.
#pragma once
#include "device/ptx/cp_async.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// Loads pieces of rows of 16-bit elements at any address as the aligned 16-byte blocks that hold them, and shifts them into
/// place in shared memory: a slot's contents do not depend on the address. Each thread has its own 16 bytes of a few positions.
template <class T>
struct ShiftedPieces {
  uint4 *mine, *behind;  ///< slots of position 0: this thread's; of the block behind the tile's last
  int steps, most;       ///< positions in bounds; the most of any thread
  bool last;             ///< no thread has the next 16 bytes
  const T* row;          ///< this thread's first element
  std::int64_t stride;

  /// Copies 16 bytes, of which `left` belong to the tensor; single elements if a copy would reach past its end.
  static __device__ __forceinline__ void ask_block(uint4* slot, const char* block, std::int64_t left) {
    if (left >= 16) return cp_async<16>(slot, block, 16);
    for (int e = 0; e < static_cast<int>(left) / 2; ++e)
      reinterpret_cast<std::uint16_t*>(slot)[e] = reinterpret_cast<const std::uint16_t*>(block)[e];
  }
  /// `end`: one past the tensor's last element. Starts the copies that finish() waits for.
  __device__ __forceinline__ void ask(const T* end, int lanes) const {
    const T* p = row;
    const int groups = divide_pow2(static_cast<int>(blockDim.x), lanes);
    for (int k = 0; k < steps; ++k, p += stride) {
      const char* const block = reinterpret_cast<const char*>(p) - misalignment(p);
      const std::int64_t left = reinterpret_cast<const char*>(end) - block;
      ask_block(mine + k * static_cast<int>(blockDim.x), block, left);
      if (last && misalignment(p) != 0) ask_block(behind + k * groups, block + 16, left - 16);
    }
  }
  __device__ __forceinline__ void finish(int lanes) const {
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
    const T* p = row;
    const int threads = static_cast<int>(blockDim.x), groups = divide_pow2(threads, lanes);
    for (int k = 0; k < most; ++k, p += stride) {
      const uint4 low = mine[k * threads], high = last ? behind[k * groups] : mine[k * threads + 1];
      __syncwarp();
      if (k < steps && misalignment(p) != 0) mine[k * threads] = shift_bytes(low, high, misalignment(p));
    }
  }
};

/// Copies the pieces of rows in a warp's slots word by word, so that neighbouring lanes access neighbouring words, for rows at
/// any address. 16-bit elements are only stored in this way.
template <class T>
struct WarpRows {
  using U = Unit<T>;
  static constexpr int kPer = kUnitCount<T>, kUnits = 16 / static_cast<int>(sizeof(U));
  U* slots;  ///< of the warp, position 0
  int lanes, steps, most;
  std::int64_t columns, column;  ///< of a row; the first of this thread's tile

  /// f(word's number in the row, slot, columns from there on, element's offset, positions) for each word; `offset`: of this row.
  template <class F>
  __device__ __forceinline__ void each(std::int64_t offset, const F& f) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll 1
    for (int j = 0; j < kUnits; ++j) {
      const int unit = j * kWarpSize + lane, i = unit & (lanes * kUnits - 1), owner = unit / kUnits & -lanes;
      const std::int64_t first = __shfl_sync(kFullWarp, column, owner) + i * kPer;
      const std::int64_t row = __shfl_sync(kFullWarp, offset, owner);
      const int rows = __shfl_sync(kFullWarp, steps, owner);
      f(i, slots + unit, static_cast<int>(min(max(columns - first, std::int64_t{-1}), std::int64_t{4})), row + first, rows);
    }
  }
  static __device__ __forceinline__ int plane() { return static_cast<int>(blockDim.x) * kUnits; }

  __device__ __forceinline__ void load(const T* in, std::int64_t offset, std::int64_t stride) const {
    each(offset, [&](int, U* slot, int left, std::int64_t at, int rows) {
      const T* p = in + at;
#pragma unroll 4
      for (int k = 0; k < rows; ++k, p += stride, slot += plane())
        if (left > 0) cp_async<sizeof(U)>(slot, p, sizeof(U));
    });
    cp_async_commit();
    cp_async_wait<0>();
    __syncwarp();
  }
  /// Elements O as wide as T.
  template <class O>
  __device__ __forceinline__ void store(O* out, std::int64_t offset) const {
    __syncwarp();
    each(offset, [&](int i, const U* slot, int left, std::int64_t at, int rows) {
      O* q = out + at;
#pragma unroll 4
      for (int k = 0; k < most; ++k, q += columns, slot += plane()) {
        const U word = *slot;
        if constexpr (kPer == 1) {
          if (k < rows && left > 0) *reinterpret_cast<U*>(q) = word;
        } else {
          const U before = __shfl_up_sync(kFullWarp, word, 1);
          if (k >= rows || left < 0) continue;
          auto* const halves = reinterpret_cast<unsigned short*>(q);
          if ((misalignment(q) & 2) == 0) {
            if (left > 1)
              *reinterpret_cast<U*>(q) = word;
            else if (left > 0)
              halves[0] = static_cast<unsigned short>(word);
          } else {  // aligned words end in the first half of this one
            if (i > 0 && left > 0)
              *reinterpret_cast<U*>(q - 1) = __funnelshift_r(before, word, 16);
            else if (i > 0)
              halves[-1] = static_cast<unsigned short>(before >> 16);
            else if (left > 0)
              halves[0] = static_cast<unsigned short>(word);
            if (i == lanes * kUnits - 1 && left > 1) halves[1] = static_cast<unsigned short>(word >> 16);
          }
        }
      }
    });
  }
};

}  // namespace xgemm::softmax
