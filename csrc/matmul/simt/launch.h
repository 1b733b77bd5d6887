// Launching a planned product. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "device/numeric.cuh"
#include "matmul/bf16x3/plan.h"
#include "matmul/simt/plan.h"

namespace xgemm::matmul {

struct LineStats;

/// Which elements of a product are wanted: those whose pair of lines the fp16 split cannot do (fp16_split/line_scale.cuh); all
/// where `a` is null. Not for plans that split K.
struct FailedPairs {
  const LineStats *a = nullptr, *b = nullptr;  ///< [batch or one][line]
  int batch_step_a = 0, batch_step_b = 0;      ///< 0: one matrix for all batches
  const LineStats* up = nullptr;               ///< gated: of the other weight, one matrix for all batches
};

/// FailedLines as the kernels see them: where all of A's lines failed, or all of B's, nothing is left for fp16 parts.
struct FailedProduct {
  FailedLines* lines = nullptr;           ///< null: nothing is counted
  unsigned lines_a = ~0u, lines_b = ~0u;  ///< of all batches; ~0: a product in one part is never left out
};

/// Enqueues the product on `stream`; `workspace` holds plan.workspace_bytes. Errors show in cudaGetLastError. One instantiation
/// an element type (simt_<type>.cu).
template <class T>
void launch_simt(const Problem& p, const SimtPlan& plan, void* workspace, cudaStream_t stream, const FailedPairs& only = {});

}  // namespace xgemm::matmul
