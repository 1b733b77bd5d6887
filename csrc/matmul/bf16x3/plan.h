// The plan of the fp32 kernel that splits its operands on the way to the tensor cores (bf16x3/kernel.cu).
#pragma once
#include "matmul/plan/tiles.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr int kBf16x3Columns = 128;  ///< of C per CTA: two consumer warpgroups of 64
inline constexpr int kBf16x3Block = 64;     ///< k per block, after which sums are promoted
inline constexpr int kBf16x3Short = 2;      ///< up to so many blocks, tiles are not split and sums are more exact

/// Biased exponents of the largest magnitudes of A's and B's lines that add up to less keep k products' sums under 2^126.
constexpr int bf16x3_reach_limit(std::int64_t k) {
  int limit = 379;
  for (std::int64_t products = 1; products < k; products *= 2) --limit;
  return limit;
}

struct Bf16x3Plan {
  TensorOperand b;             ///< in place
  bool a_vectors;              ///< quads of A are aligned accesses
  std::int64_t tiles;          ///< of all batches
  std::int64_t blocks;         ///< of k
  std::int64_t granule;        ///< k-blocks per unit of work
  std::int64_t units;          ///< per tile: ceil(blocks / granule)
  std::int64_t ctas;           ///< CTA c does units c U / ctas to (c + 1) U / ctas of all U, in order of tiles
  std::int64_t partial_bytes;  ///< sums of tiles that several CTAs share; 0: none does
  std::int64_t counter_bytes;  ///< zeros before and after the launch
  double seconds;              ///< predicted

  bool b_tma() const { return !b.copied; }  ///< TMA loads B, else cp.async element by element
};

/// What the passes over fp32 operands count (fp16_split/split.cuh). Zeros before a product and after it.
struct alignas(16) FailedLines {
  unsigned of_a, of_b;  ///< lines of A, of B, that pair well with no line but zeros
  unsigned low;         ///< lines whose numbers may need lifting for three bf16 parts (fp16_split/line_scale.cuh)
  /// From bit 16 on, of A, then of B: are there lines that stay below 3/8, 9/16, 3/4 of dense elements? Two lines pair well whose
  /// shares add up to 9/8. Below bit 16: CTAs of bf16x3/kernel.cu that have read all this.
  unsigned state;
  static constexpr int kLevelsOfA = 16, kLevelsOfB = 19;
};

/// Words of the list of the fallback's tiles.
constexpr std::int64_t bf16x3_list_words(const Bf16x3Plan& plan) { return plan.tiles + plan.ctas; }

}  // namespace xgemm::matmul
