#include "device/launch.h"
#include "matmul/fp16_split/pack.cuh"
#include "matmul/fp16_split/split.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

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
             : t.inner <= kShortRow      ? SplitWay::short_rows
             : t.inner <= 4 * 32 * kHeld ? SplitWay::rows_of_warps
                                         : SplitWay::rows_of_ctas,
      .blocks = 0,
      .vectors = (t.k_major ? x.k_stride : x.stride) == 1 && is_aligned(x.operand.data, 16) && other_stride % 4 == 0};
  for (int d = 0; d < p.batch_dims; ++d) s.vectors = s.vectors && x.operand.batch_stride[d] % 4 == 0;
  const auto lines = static_cast<unsigned>(s.lines), batches = static_cast<unsigned>(s.batches);
  const unsigned at_once = kThreads / (s.way == SplitWay::short_rows      ? kShortRowThreads
                                       : s.way == SplitWay::rows_of_warps ? 32
                                                                          : kThreads);
  s.blocks = s.way == SplitWay::columns ? (lines + kStripLines - 1) / kStripLines * batches * static_cast<unsigned>(s.chunks)
                                        : (lines * batches + at_once - 1) / at_once;
  return s;
}

/// Launches that may begin while the kernel before them ends (ptx/grid.cuh).
void launch_split(int parts, const split_detail::SplitPass& pass, cudaStream_t stream) {
  const auto launch = [&](void (*kernel)(split_detail::SplitPass), bool second) {
    unsigned blocks = 0;
    for (const SplitArguments& s : pass.operands) blocks += s.blocks_in(second);
    if (blocks > 0) enqueue(kernel, early_grid(blocks, split_detail::kThreads), stream, pass);
  };
  launch(parts == 2 ? split_operands<2> : split_operands<1>, false);
  launch(parts == 2 ? split_operands_second<2> : split_operands_second<1>, true);
}

}  // namespace

void launch_passes(const Problem& p, int parts, const TensorOperand& a, const TensorOperand& b, const TensorOperand& up,
                   unsigned char* workspace, FailedLines* failed, cudaStream_t stream) {
  if (parts == 0) {  // in one launch; gated: two
    const auto of = [&](const OperandLines& x, const TensorOperand& t) {
      return pack_operand<std::uint16_t>(p, x, t, workspace);
    };
    launch_pack(p, of(lines_of_a(p), a), of(lines_of_b(p), b), stream);
    if (p.gated) launch_pack(p, of(lines_of_up(p), up), {}, stream);
    return;
  }
  split_detail::SplitPass pass{};
  const auto split = [&](const OperandLines& x, const TensorOperand& t, bool of_b) {
    return split_arguments(p, x, t, workspace, failed, of_b);
  };
  pass.operands[0] = split(lines_of_a(p), a, false);
  if (!b.prepared) pass.operands[1] = split(lines_of_b(p), b, true);
  if (p.gated) pass.operands[2] = split(lines_of_up(p), up, true);
  launch_split(parts, pass, stream);
}

void launch_prepare(const Problem& p, int parts, void* prepared, cudaStream_t stream) {
  FailedLines* const failed = failed_of(p, parts, prepared);
  cudaMemsetAsync(failed, 0, sizeof(FailedLines), stream);
  split_detail::SplitPass pass{};
  pass.operands[0] =
      split_arguments(p, lines_of_b(p), prepared_operand(p.n, p.k, parts), static_cast<unsigned char*>(prepared), failed, true);
  launch_split(parts, pass, stream);
}

}  // namespace xgemm::matmul
