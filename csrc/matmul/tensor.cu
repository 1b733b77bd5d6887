#include <algorithm>

#include "matmul/kernels/pack.cuh"
#include "matmul/kernels/split_fp16.cuh"
#include "matmul/launch.h"
#include "matmul/tensor_launch.h"

namespace xgemm::matmul {
namespace {

void launch_pack(const Problem& p, const Operand& x, const TensorOperand& t, std::int64_t inner_stride, std::int64_t other_stride,
                 unsigned char* workspace, cudaStream_t stream) {
  const PackArguments g{p, x, inner_stride, other_stride, reinterpret_cast<std::uint16_t*>(workspace + t.copy),
                        t.ld, t.inner, t.other, t.batches};
  const std::int64_t blocks = (t.batches * t.other * (t.ld / 8) + 255) / 256;
  pack<<<static_cast<unsigned>(std::min<std::int64_t>(blocks, 1 << 20)), 256, 0, stream>>>(g);
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
  if (t.k_major) {
    split_rows<kParts><<<static_cast<unsigned>(s.lines) * static_cast<unsigned>(s.batches), kThreads, 0, stream>>>(s);
    return;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>((s.lines + kStrip - 1) / kStrip * s.batches * kCluster));
  config.blockDim = dim3(kStripThreads);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, split_columns<kParts>, s);
}

}  // namespace

bool launch_tensor(const Problem& p, const TensorPlan& plan, void* workspace, int sm_count, cudaStream_t stream) {
  unsigned char* const space = static_cast<unsigned char*>(workspace);
  const auto prepare = [&](const Operand& x, const TensorOperand& t, std::int64_t line_stride, std::int64_t k_stride) {
    if (!t.copied) return;
    if (plan.parts == 2)
      launch_split<2>(p, x, t, line_stride, k_stride, space, stream);
    else if (plan.parts == 1)
      launch_split<1>(p, x, t, line_stride, k_stride, space, stream);
    else
      launch_pack(p, x, t, t.k_major ? k_stride : line_stride, t.k_major ? line_stride : k_stride, space, stream);
  };
  prepare(p.a, plan.a, p.a.row_stride, p.a.col_stride);
  prepare(p.b, plan.b, p.b.col_stride, p.b.row_stride);
  const WgmmaLaunch launch{p, plan, space, sm_count, stream};
  if (plan.parts == 0) return p.dtype == DType::f16 ? launch_wgmma_half(launch) : launch_wgmma_bf16(launch);
  if (!(plan.parts == 2 ? launch_wgmma_fp16x3(launch) : launch_wgmma_fp16x1(launch))) return false;
  launch_simt<float>(p, plan.rest, space + plan.rest_space, stream,
                     {.a = reinterpret_cast<const LineStats*>(space + plan.a.stats),
                      .b = reinterpret_cast<const LineStats*>(space + plan.b.stats),
                      .batch_step_a = plan.a.batch_step,
                      .batch_step_b = plan.b.batch_step});
  return true;
}

}  // namespace xgemm::matmul
