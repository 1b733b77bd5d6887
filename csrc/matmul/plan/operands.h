// 16-bit operands of a product: in place, packed, or fp32 split in fp16 parts; their places in the workspace and the time of the
// passes that write them.
#pragma once
#include "matmul/plan/roofline.h"
#include "matmul/simt/plan.h"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

inline constexpr std::int64_t kLeastSplitK = 128;  ///< of two parts: for smaller K their own error (2^-22) shows
inline constexpr double kSplitLaunch = 2.8;        ///< of each: a pass over an operand, the product, the fallback

/// `copied`: even if it could be read in place; `along_k`: the kernel needs it contiguous along k.
TensorOperand place_operand(const Problem& p, const OperandLines& x, bool copied, bool along_k);
/// The pass that splits an operand in fp16 `parts`, or packs it (0).
double pass_us(const Question& q, const OperandLines& x, const TensorOperand& t, int parts);
/// Takes the place of a copy and of its lines' statistics from a workspace of `bytes`.
void take_copy(const Question& q, int parts, TensorOperand& x, std::int64_t& bytes);
/// The product on CUDA cores, for the elements that fp16 parts cannot represent: its launch must be short if there are none.
SimtPlan simt_fallback(Problem p, const DeviceProperties& gpu);

}  // namespace xgemm::matmul
