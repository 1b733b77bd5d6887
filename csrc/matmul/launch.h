// Launches of all families but wgmma, which has a launch.h of its own; defined in the family's folder. Free of torch.
#pragma once
#include <cuda_runtime.h>

#include "device/numeric.cuh"
#include "matmul/bf16x3/plan.h"
#include "matmul/fp64_mma/plan.h"
#include "matmul/gemv/plan.h"
#include "matmul/mma/plan.h"
#include "matmul/simt/plan.h"
#include "matmul/sliced/plan.h"
#include "matmul/tf32/plan.h"
#include "matmul/wgmma/plan.h"

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

// Each enqueues the product on `stream`. `workspace`: plan.workspace_bytes; `counters`: plan.counter_bytes of zeros, zeros again
// afterwards; `partials`: plan.partial_bytes. Errors show in cudaGetLastError.
template <class T>  // in simt/<type>.cu
void launch_simt(const Problem& p, const SimtPlan& plan, void* workspace, cudaStream_t stream, const FailedPairs& only = {});
template <class T>
void launch_gemv(const Problem& p, const GemvPlan& plan, void* workspace, cudaStream_t stream);
void launch_dot(const Problem& p, cudaStream_t stream);
void launch_sweep(const Problem& p, const GemvPlan& plan, cudaStream_t stream);
void launch_outputs(const Problem& p, const GemvPlan& plan, cudaStream_t stream);
void launch_fp64(const Problem& p, const Fp64Plan& plan, void* workspace, cudaStream_t stream);
template <class T>  // in mma/<type>.cu
void launch_mma(const Problem& p, const MmaPlan& plan, void* counters, float* partials, cudaStream_t stream);
void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream);

/// Sums of splits, [split][batch][m][n], by simt/kernel.cuh's last launch: adds them in order and stores C.
template <class T>
void launch_sum_splits(const Problem& p, std::int64_t splits, float* sums, cudaStream_t stream);
void launch_large(const Problem& p, const LargePlan& plan, unsigned char* workspace, float* partials, cudaStream_t stream);

/// Enqueues what operands a, b and, of a gated product, up need before they can be multiplied (fp16_split/): copies, packed or
/// split in fp16 parts. `failed`: where lines are counted that the parts cannot represent, or null.
void launch_passes(const Problem& p, int parts, const TensorOperand& a, const TensorOperand& b, const TensorOperand& up,
                   unsigned char* workspace, FailedLines* failed, cudaStream_t stream);

/// Enqueues the split of b, a weight, into `prepared`, which has prepared_layout's size.
void launch_prepare(const Problem& p, int parts, void* prepared, cudaStream_t stream);

/// The FailedLines of a prepared b follow it in memory.
inline FailedLines* failed_of(const Problem& p, int parts, void* prepared) {
  return reinterpret_cast<FailedLines*>(static_cast<unsigned char*>(prepared) + prepared_layout(p.n, p.k, parts).bytes);
}

// False: the driver refused a tensor map, nothing was launched.
bool launch_tf32(const Problem& p, const Tf32Plan& plan, unsigned char* workspace, void* counters, float* partials,
                 cudaStream_t stream);
bool launch_bf16x3(const Problem& p, const Bf16x3Plan& plan, void* counters, float* partials, cudaStream_t stream);
/// The same for the elements that fp16 parts cannot represent, by a plan of plan_bf16x3_fallback. `list`: its
/// bf16x3_list_words. `prepared`: the counts of a prepared B, or null.
bool launch_bf16x3_fallback(const Problem& p, const Bf16x3Plan& plan, const FailedPairs& only, const FailedProduct& failed,
                            const FailedLines* prepared, unsigned* list, cudaStream_t stream);

}  // namespace xgemm::matmul
