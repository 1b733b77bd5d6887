// Launching a planned product. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "device/numeric.cuh"
#include "matmul/bf16x3/plan.h"
#include "matmul/simt/plan.h"

namespace xgemm::matmul {

struct LineStats;

/// Which elements of a product are computed: those whose pair of lines the fp16 split cannot represent
/// (fp16_split/line_scale.cuh); all if `a` is null. Not for plans that split K.
struct FailedPairs {
  const LineStats *a = nullptr, *b = nullptr;  ///< [batch or one][line]
  int batch_step_a = 0, batch_step_b = 0;      ///< 0: one matrix for all batches
  const LineStats* up = nullptr;               ///< gated: of the other weight, one matrix for all batches
};

/// FailedLines as the kernels see them: if all lines of A or all of B failed, the product in fp16 parts does nothing.
struct FailedProduct {
  FailedLines* lines = nullptr;           ///< null: nothing is counted
  unsigned lines_a = ~0u, lines_b = ~0u;  ///< of all batches; ~0: a product in one part always runs
};

/// Enqueues the product on `stream`; `workspace` holds plan.workspace_bytes. Errors show in cudaGetLastError. One instantiation
/// per element type (simt/<type>.cu).
template <class T>
void launch_simt(const Problem& p, const SimtPlan& plan, void* workspace, cudaStream_t stream, const FailedPairs& only = {});

}  // namespace xgemm::matmul
