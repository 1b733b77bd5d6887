// The passes over a product's operands: packed, or split in fp16 parts (plan/operands.h). Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

/// Enqueues what operands a, b and, of a gated product, up need before they can be multiplied. `failed`: where lines are counted
/// that the parts cannot represent, or null.
void launch_passes(const Problem& p, int parts, const TensorOperand& a, const TensorOperand& b, const TensorOperand& up,
                   unsigned char* workspace, FailedLines* failed, cudaStream_t stream);

/// Enqueues the split of b, a weight, into `prepared`, which has prepared_layout's size.
void launch_prepare(const Problem& p, int parts, void* prepared, cudaStream_t stream);

/// The FailedLines of a prepared b follow it in memory.
inline FailedLines* failed_of(const Problem& p, int parts, void* prepared) {
  return reinterpret_cast<FailedLines*>(static_cast<unsigned char*>(prepared) + prepared_layout(p.n, p.k, parts).bytes);
}

}  // namespace xgemm::matmul
