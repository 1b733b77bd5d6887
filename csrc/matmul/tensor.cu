#include <algorithm>

#include "device/launch.h"
#include "matmul/kernels/pack.cuh"
#include "matmul/kernels/split_fp16.cuh"
#include "matmul/launch.h"
#include "matmul/tensor_launch.h"

namespace xgemm::matmul {
namespace {

/// A launch that may begin while the kernel before it ends (ptx/grid.cuh); `cluster` CTAs a cluster.
template <class Arguments>
void launch(void (*kernel)(Arguments), unsigned blocks, unsigned threads, unsigned cluster, const Arguments& arguments,
            cudaStream_t stream) {
  enqueue(kernel, {.blocks = dim3(blocks), .threads = dim3(threads), .cluster = cluster, .early = true}, stream, arguments);
}

/// What TMA cannot load as it lies, in one launch.
void launch_pack(const Problem& p, const TensorPlan& plan, unsigned char* workspace, cudaStream_t stream) {
  if (!plan.a.copied && !plan.b.copied) return;
  const auto fill = [&](const Operand& x, const TensorOperand& t, std::int64_t line_stride,
                        std::int64_t k_stride) -> PackOperand {
    return {.operand = x,
            .inner_stride = t.k_major ? k_stride : line_stride,
            .other_stride = t.k_major ? line_stride : k_stride,
            .out = reinterpret_cast<std::uint16_t*>(workspace + t.copy),
            .ld = t.ld,
            .inner = t.inner,
            .other = t.other,
            .batches = t.batches,
            .pieces = t.copied ? t.batches * t.other * (t.ld / 8) : 0};
  };
  PackArguments g{
      .problem = p,
      .operands = {fill(p.a, plan.a, p.a.row_stride, p.a.col_stride), fill(p.b, plan.b, p.b.col_stride, p.b.row_stride)},
      .blocks_first = 0};
  const auto blocks = [](const PackOperand& x) {
    return static_cast<unsigned>(std::min<std::int64_t>((x.pieces + 255) / 256, 1 << 20));
  };
  g.blocks_first = blocks(g.operands[0]);
  launch(pack, g.blocks_first + blocks(g.operands[1]), 256, 1, g, stream);
}

template <int kParts>
void launch_split(const Problem& p, const Operand& x, const TensorOperand& t, std::int64_t line_stride, std::int64_t k_stride,
                  unsigned char* workspace, cudaStream_t stream) {
  using namespace split_detail;
  const std::int64_t other_stride = t.k_major ? line_stride : k_stride;
  SplitArguments s{.problem = p,
                   .operand = x,
                   .line_stride = line_stride,
                   .k_stride = k_stride,
                   .out = reinterpret_cast<half*>(workspace + t.copy),
                   .ld = t.ld,
                   .stats = reinterpret_cast<LineStats*>(workspace + t.stats),
                   .lines = static_cast<int>(t.k_major ? t.other : t.inner),
                   .k = static_cast<int>(t.k_major ? t.inner : t.other),
                   .batches = static_cast<int>(t.batches),
                   .vectors = (t.k_major ? k_stride : line_stride) == 1 && is_aligned(x.data, 16) && other_stride % 4 == 0};
  for (int d = 0; d < p.batch_dims; ++d) s.vectors = s.vectors && x.batch_stride[d] % 4 == 0;
  const auto lines = static_cast<unsigned>(s.lines), batches = static_cast<unsigned>(s.batches);
  if (t.k_major)
    launch(split_rows<kParts>, lines * batches, kThreads, 1, s, stream);
  else
    launch(split_columns<kParts>, (lines + kStrip - 1) / kStrip * batches * kCluster, kStripThreads, kCluster, s, stream);
}

}  // namespace

bool launch_tensor(const Problem& p, const TensorPlan& plan, void* workspace, int sm_count, cudaStream_t stream) {
  unsigned char* const space = static_cast<unsigned char*>(workspace);
  const auto split = [&](const Operand& x, const TensorOperand& t, std::int64_t line_stride, std::int64_t k_stride) {
    if (plan.parts == 2)
      launch_split<2>(p, x, t, line_stride, k_stride, space, stream);
    else
      launch_split<1>(p, x, t, line_stride, k_stride, space, stream);
  };
  if (plan.parts == 0) {
    launch_pack(p, plan, space, stream);
  } else {
    split(p.a, plan.a, p.a.row_stride, p.a.col_stride);
    split(p.b, plan.b, p.b.col_stride, p.b.row_stride);
  }
  const WgmmaLaunch launch{p, plan, space, sm_count, stream};
  if (plan.parts == 0) return p.dtype == DType::f16 ? launch_wgmma_half(launch) : launch_wgmma_bf16(launch);
  if (!(plan.parts == 2 ? launch_wgmma_fp16x3(launch) : launch_wgmma_fp16x1(launch))) return false;
  launch_simt<float>(p, plan.rest, nullptr, stream,
                     {.a = reinterpret_cast<const LineStats*>(space + plan.a.stats),
                      .b = reinterpret_cast<const LineStats*>(space + plan.b.stats),
                      .batch_step_a = plan.a.batch_step,
                      .batch_step_b = plan.b.batch_step});
  return true;
}

}  // namespace xgemm::matmul
