// What the passes that split fp32 operands in fp16 parts (split.cuh) tell the kernels after them: which lines failed.
#pragma once

namespace xgemm::matmul {

struct LineStats;

/// Counts of a product's lines. Zeros before a product and after it.
struct alignas(16) FailedLines {
  unsigned of_a, of_b;  ///< lines of A, of B, that pair well with no line but zeros
  /// From bit 16 on, of A, then of B: are there lines that stay below 3/8, 9/16, 3/4 of dense elements? Two lines pair well whose
  /// shares add up to 9/8. Below bit 16: CTAs of the fallback (sliced/fallback.cuh) that have read all this.
  unsigned state;
  static constexpr int kLevelsOfA = 16, kLevelsOfB = 19;
};

/// FailedLines as the kernels see them: if all lines of A or all of B failed, the product in fp16 parts does nothing.
struct FailedProduct {
  FailedLines* lines = nullptr;           ///< null: nothing is counted
  unsigned lines_a = ~0u, lines_b = ~0u;  ///< of all batches; ~0: a product in one part always runs
};

/// Which elements of a product are computed: those whose pair of lines the fp16 split cannot represent (line_scale.cuh); all if
/// `a` is null. Not for plans that split K.
struct FailedPairs {
  const LineStats *a = nullptr, *b = nullptr;  ///< [batch or one][line]
  int batch_step_a = 0, batch_step_b = 0;      ///< 0: one matrix for all batches
  const LineStats* up = nullptr;               ///< gated: of the other weight, one matrix for all batches
};

}  // namespace xgemm::matmul
