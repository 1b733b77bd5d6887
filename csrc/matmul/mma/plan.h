// The plan of the one-launch kernel for half-precision products that are small or narrow, and for fp32 ones in tf32 ("high" and
// "medium"), mma/kernel.cuh.
#pragma once
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

inline constexpr int kMmaRowBytes = 128;  ///< of a line of a k-block: 64 k, or 32 of fp32

struct MmaPlan {
  MmaTile tile;
  int bytes_a, bytes_b;        ///< multiples of which an operand's rows start and end at: 16, 8 (fp32), 4 or 2
  std::int64_t splits;         ///< of K (fp32), a CTA each: split_k.cuh
  std::int64_t split_blocks;   ///< k-blocks of a split
  std::int64_t partial_bytes;  ///< sums of splits
  std::int64_t counter_bytes;  ///< zeros before and after the launch
  double seconds;              ///< predicted
  bool is_unaligned() const { return bytes_a < 16 || bytes_b < 16; }
};

}  // namespace xgemm::matmul
