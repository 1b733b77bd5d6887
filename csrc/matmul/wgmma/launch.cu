#include "device/launch.h"
#include "matmul/launch.h"
#include "matmul/operand_map.h"
#include "matmul/wgmma/launch.h"

namespace xgemm::matmul {
bool launch_wgmma_product(const Problem& product, const WgmmaPlan& plan, void* workspace, void* counters, float* partials,
                          int sm_count, cudaStream_t stream) {
  const Problem p = plan.swapped ? transposed(product) : product;
  unsigned char* const space = static_cast<unsigned char*>(workspace);
  FailedProduct failed{};
  if (plan.fallback_bf16x3) {
    failed.lines = static_cast<FailedLines*>(counters);
    if (plan.parts == 2) {
      failed.lines_a = static_cast<unsigned>(p.m * plan.a.batches);
      if (!plan.b.prepared) failed.lines_b = static_cast<unsigned>(p.n * plan.b.batches);
    }
  }
  launch_passes(p, plan.parts, plan.a, plan.b, plan.up, space, failed.lines, stream);
  const WgmmaLaunch launch{p, plan, space, counters, partials, sm_count, stream, failed};
  if (plan.b_as_it_lies) return launch_few_rows(launch);
  if (plan.parts == 0)
    return p.gated ? launch_wgmma_gated(launch) : p.dtype == DType::f16 ? launch_wgmma_half(launch) : launch_wgmma_bf16(launch);
  FailedPairs only{.a = reinterpret_cast<const LineStats*>(space + plan.a.stats),
                   .b = reinterpret_cast<const LineStats*>(memory_of(plan.b, p, space) + plan.b.stats),
                   .batch_step_a = plan.a.batch_step,
                   .batch_step_b = plan.b.batch_step};
  const bool launched = p.gated           ? launch_wgmma_gated(launch)
                        : plan.parts == 2 ? launch_wgmma_fp16x3(launch)
                                          : launch_wgmma_fp16x1(launch);
  if (!launched || (plan.fallback_bf16x3 &&
                    !launch_bf16x3_fallback(p, *plan.fallback_bf16x3, only, failed,
                                            plan.b.prepared ? failed_of(p, plan.parts, const_cast<void*>(p.prepared_b)) : nullptr,
                                            reinterpret_cast<unsigned*>(space + plan.list), stream))) {
    if (failed.lines) cudaMemsetAsync(failed.lines, 0, sizeof(FailedLines), stream);
    return false;
  }
  if (plan.fallback_bf16x3) return true;
  if (!p.gated) {
    launch_simt<float>(p, plan.fallback, nullptr, stream, only);
    return true;
  }
  // Both products recompute the same elements: the first leaves its sums in out, the second multiplies by them.
  only.up = reinterpret_cast<const LineStats*>(space + plan.up.stats);
  launch_simt<float>(up_product(p, p.out), plan.fallback_up, nullptr, stream, only);
  launch_simt<float>(gate_product(p, p.out), plan.fallback, nullptr, stream, only);
  return true;
}

}  // namespace xgemm::matmul
