// Host side of wgmma/few_rows.cuh.
#include "matmul/wgmma/few_rows.cuh"
#include "matmul/wgmma/launch.cuh"

namespace xgemm::matmul {
namespace {

/// One tensor map for each class of B's lines: line number modulo kLineClasses.
template <class Shape>
bool make_line_maps(FewRowsArguments& f, const Problem& p, const TensorOperand& b) {
  const std::int64_t stride = Shape::kKMajor ? p.b.col_stride : p.b.row_stride;
  for (int c = 0; c < kLineClasses; ++c) {
    const auto line = reinterpret_cast<std::uintptr_t>(p.b.data) + static_cast<std::uintptr_t>(2 * c * stride);
    f.skew[c] = static_cast<int>(line % 16 / 2);
    const std::int64_t lines = (b.other - c + kLineClasses - 1) / kLineClasses;
    if (!make_tensor_map(f.b[c],
                         {.data = reinterpret_cast<const void*>(line / 16 * 16),
                          .dtype = p.dtype,
                          .sizes = {f.skew[c] + b.inner, lines, b.batches},
                          .strides = {kLineClasses * stride, b.batch_step ? p.b.batch_stride[0] : kLineClasses * stride * lines},
                          .box = {Shape::kBox[0], Shape::kBox[1]},
                          .swizzle_bytes = 0}))
      return false;
  }
  f.batch_step_b = b.batch_step;
  return true;
}

template <class T, class Shape>
bool launch_shape(const WgmmaLaunch& launch) {
  const Problem& p = launch.problem;
  const WgmmaPlan& plan = launch.plan;
  FewRowsArguments f{};
  WgmmaArguments& g = f.g;
  g.problem = p;
  g.batch_step_a = plan.a.batch_step;
  g.k.split_blocks = static_cast<int>(plan.split_length / kWgmmaTileK), g.k.cluster_splits = static_cast<int>(plan.cluster);
  g.tiles.columns = static_cast<int>((p.n + Shape::kColumns - 1) / Shape::kColumns);
  f.multicast = g.k.cluster_splits == 1;
  f.halves = !f.multicast && p.m > Shape::kRows ? 2 : 1;
  g.tiles.count = static_cast<int>(g.tiles.columns * p.batches * f.halves);
  f.after_copy = plan.a.copied;
  if (!make_operand_map(g.a, p, p.a, plan.a, launch.workspace, p.dtype, kWgmmaTileK, Shape::kRows) ||
      !make_line_maps<Shape>(f, p, plan.b))
    return false;
  constexpr auto kKernel = few_rows<T, Shape>;
  const int cluster = f.multicast ? 2 : g.k.cluster_splits, tiles = g.tiles.count,
            at_once = std::max(1, launch.sm_count / cluster);
  return enqueue_with_shared<kKernel, Shape::kSharedBytes>(
      early_grid((plan.cluster > 1 ? tiles : std::min(tiles, at_once)) * cluster, Shape::kThreads, cluster), launch.stream, f);
}

}  // namespace

bool launch_few_rows(const WgmmaLaunch& launch) {
  const Problem& p = launch.problem;
  const bool along_k = launch.plan.b.k_major;
  const std::int64_t stride = along_k ? p.b.col_stride : p.b.row_stride;
  const bool even_lines = reinterpret_cast<std::uintptr_t>(p.b.data) % 4 == 0 || stride % 2 != 0;
  bool launched = false;
  dispatch_flags(along_k, p.m <= 32 && even_lines, [&]<bool kAlongK, bool kWords>() {
    using Shape = FewRowsShape<kAlongK, kWords>;
    launched = p.dtype == DType::f16 ? launch_shape<half, Shape>(launch) : launch_shape<bf16, Shape>(launch);
  });
  return launched;
}

}  // namespace xgemm::matmul
