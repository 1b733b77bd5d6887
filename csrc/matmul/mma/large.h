// The plan of mma/large.cuh.
#pragma once
#include <cstdint>

#include "matmul/plan/tiles.h"
#include "matmul/simt/plan.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

struct LargePlan {
  LargeTile tile;
  int parts;                  ///< fp16 parts that fp32 operands are split in: 2 "highest", 1 "high"; 0: half precision
  TensorOperand a, b;         ///< in place, packed, or split
  std::int64_t splits;        ///< of K, a CTA each
  std::int64_t split_blocks;  ///< k-blocks of a split
  SimtPlan fallback;          ///< fp32: for the elements that fp16 parts cannot represent
  std::int64_t workspace_bytes, partial_bytes;
  double seconds;  ///< predicted
};

}  // namespace xgemm::matmul
