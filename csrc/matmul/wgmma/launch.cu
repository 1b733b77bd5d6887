#include <algorithm>

#include "device/launch.h"
#include "matmul/fp16_split/pack.cuh"
#include "matmul/fp16_split/split.cuh"
#include "matmul/launch.h"
#include "matmul/operand_map.h"
#include "matmul/wgmma/launch.h"

namespace xgemm::matmul {
namespace {

/// Packs the operands that TMA cannot load in place, in one launch (gated: two).
void launch_copies(const Problem& p, const WgmmaPlan& plan, unsigned char* workspace, cudaStream_t stream) {
  const auto of = [&](const OperandLines& x, const TensorOperand& t) { return pack_operand<std::uint16_t>(p, x, t, workspace); };
  launch_pack(p, of(lines_of_a(p), plan.a), of(lines_of_b(p), plan.b), stream);
  if (p.gated) launch_pack(p, of(lines_of_up(p), plan.up), {}, stream);
}

SplitArguments split_arguments(const Problem& p, const OperandLines& x, const TensorOperand& t, unsigned char* workspace,
                               FailedLines* failed, bool of_b) {
  using namespace split_detail;
  const std::int64_t other_stride = t.k_major ? x.stride : x.k_stride;
  SplitArguments s{
      .problem = p,
      .operand = x.operand,
      .line_stride = x.stride,
      .k_stride = x.k_stride,
      .out = reinterpret_cast<half*>(workspace + t.copy),
      .ld = t.ld,
      .stats = reinterpret_cast<LineStats*>(workspace + t.stats),
      .tops = reinterpret_cast<unsigned*>(workspace + t.tops),
      .failed = failed,
      .of_b = of_b,
      .lines = static_cast<int>(t.k_major ? t.other : t.inner),
      .k = static_cast<int>(t.k_major ? t.inner : t.other),
      .batches = static_cast<int>(t.batches),
      .chunks = t.chunks,
      .way = !t.k_major                  ? SplitWay::columns
             : t.inner <= 4 * 32 * kHeld ? SplitWay::rows_of_warps
                                         : SplitWay::rows_of_ctas,
      .blocks = 0,
      .vectors = (t.k_major ? x.k_stride : x.stride) == 1 && is_aligned(x.operand.data, 16) && other_stride % 4 == 0};
  for (int d = 0; d < p.batch_dims; ++d) s.vectors = s.vectors && x.operand.batch_stride[d] % 4 == 0;
  const auto lines = static_cast<unsigned>(s.lines), batches = static_cast<unsigned>(s.batches);
  s.blocks = s.way == SplitWay::columns         ? (lines + kStrip - 1) / kStrip * batches * static_cast<unsigned>(s.chunks)
             : s.way == SplitWay::rows_of_warps ? (lines * batches + 7) / 8
                                                : lines * batches;
  return s;
}

/// Launches that may begin while the kernel before them ends (ptx/grid.cuh).
void launch_split(int parts, split_detail::SplitPass& pass, cudaStream_t stream) {
  unsigned columns = 0;
  for (const SplitArguments& s : pass.operands) pass.blocks += s.blocks, columns += s.way == SplitWay::columns ? s.blocks : 0;
  const auto launch = [&](void (*kernel)(split_detail::SplitPass), unsigned blocks) {
    if (blocks > 0)
      enqueue(kernel, {.blocks = dim3(blocks), .threads = dim3(split_detail::kThreads), .early = true}, stream, pass);
  };
  launch(parts == 2 ? split_operands<2> : split_operands<1>, pass.blocks);
  launch(parts == 2 ? split_operand_columns<2> : split_operand_columns<1>, columns);
}

/// The FailedLines of a prepared b follow it in memory.
FailedLines* failed_of(const Problem& p, int parts, void* prepared) {
  return reinterpret_cast<FailedLines*>(static_cast<unsigned char*>(prepared) + prepared_layout(p.n, p.k, parts).bytes);
}

}  // namespace

void launch_prepare(const Problem& p, int parts, void* prepared, cudaStream_t stream) {
  FailedLines* const failed = failed_of(p, parts, prepared);
  cudaMemsetAsync(failed, 0, sizeof(FailedLines), stream);
  split_detail::SplitPass pass{};
  pass.operands[0] =
      split_arguments(p, lines_of_b(p), prepared_operand(p.n, p.k, parts), static_cast<unsigned char*>(prepared), failed, true);
  launch_split(parts, pass, stream);
}

bool launch_wgmma_product(const Problem& p, const WgmmaPlan& plan, void* workspace, void* counters, float* partials, int sm_count,
                          cudaStream_t stream) {
  unsigned char* const space = static_cast<unsigned char*>(workspace);
  FailedProduct failed{};
  if (plan.fallback_bf16x3) {
    failed.lines = static_cast<FailedLines*>(counters);
    if (plan.parts == 2) {
      failed.lines_a = static_cast<unsigned>(p.m * plan.a.batches);
      if (!plan.b.prepared) failed.lines_b = static_cast<unsigned>(p.n * plan.b.batches);
    }
  }
  if (plan.parts == 0) {
    launch_copies(p, plan, space, stream);
  } else {
    split_detail::SplitPass pass{};
    const auto split = [&](const OperandLines& x, const TensorOperand& t, bool of_b) {
      return split_arguments(p, x, t, space, failed.lines, of_b);
    };
    pass.operands[0] = split(lines_of_a(p), plan.a, false);
    if (!plan.b.prepared) pass.operands[1] = split(lines_of_b(p), plan.b, true);
    if (p.gated) pass.operands[2] = split(lines_of_up(p), plan.up, true);
    launch_split(plan.parts, pass, stream);
  }
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
