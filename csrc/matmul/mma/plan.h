// The plan of mma/kernel.cuh.
#pragma once
#include "matmul/plan/tiles.h"
#include "matmul/simt/plan.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

struct MmaPlan {
  MmaTile tile;
  int parts;                  ///< fp16 parts that fp32 operands are split in: 2 "highest", 1 "high"; 0: half precision, or TF32
  TensorOperand a, b;         ///< in place, packed, or split
  int bytes_a, bytes_b;       ///< multiples of which rows start and end at: 16 (a copy's start), 8 (fp32), 4 or 2
  std::int64_t splits;        ///< of K, a CTA each
  std::int64_t split_blocks;  ///< k-blocks of a split
  SimtPlan fallback;          ///< of parts: for the elements that they cannot represent
  std::int64_t workspace_bytes, partial_bytes;
  double seconds;  ///< predicted
};

}  // namespace xgemm::matmul
