// Host side of kernels/few_rows.cuh.
#include "matmul/kernels/few_rows.cuh"
#include "matmul/kernels/pack.cuh"
#include "matmul/kernels/wgmma_launch.cuh"

namespace xgemm::matmul {
namespace {

template <class T, class Shape>
bool launch_shape(const WgmmaLaunch& launch) {
  const Problem& p = launch.problem;
  const TensorPlan& plan = launch.plan;
  FewRowsArguments f{};
  WgmmaArguments& g = f.g;
  g.problem = p;
  g.batch_step_a = plan.a.batch_step;
  g.split_blocks = static_cast<int>(plan.split_length / kWgmmaTileK), g.cluster = static_cast<int>(plan.cluster);
  g.columns = static_cast<int>((p.n + Shape::kColumns - 1) / Shape::kColumns);
  g.tiles = static_cast<int>(g.columns * p.batches);
  const int rows_a = static_cast<int>(std::min<std::int64_t>(Shape::kRows, (p.m + 7) / 8 * 8));
  g.slot_bytes = Shape::kSlotK / 64 * rows_a * 128;
  if (!make_tensor_map(g.a, {.data = plan.a.copied ? launch.workspace + plan.a.copy : p.a.data,
                             .dtype = p.dtype,
                             .sizes = {plan.a.inner, plan.a.other, plan.a.batches},
                             .strides = {plan.a.ld, plan.a.plane},
                             .box = {kWgmmaTileK, rows_a},
                             .swizzle_bytes = 128}))
    return false;
  f.b = static_cast<const std::uint16_t*>(p.b.data);
  f.b_stride = Shape::kKMajor ? p.b.col_stride : p.b.row_stride;
  f.b_end = end_of<std::uint16_t>(p, p.b, plan.b.inner, 1, plan.b.other, f.b_stride);
  f.after_copy = plan.a.copied;
  constexpr auto kKernel = few_rows<T, Shape>;
  if (!allow_shared<kKernel, Shape::kSharedBytes>()) return false;
  const auto cluster = static_cast<unsigned>(plan.cluster), tiles = static_cast<unsigned>(g.tiles);
  enqueue(kKernel,
          {.blocks = dim3(cluster > 1 ? tiles * cluster : std::min(tiles, static_cast<unsigned>(launch.sm_count))),
           .threads = dim3(Shape::kThreads),
           .shared_bytes = Shape::kSharedBytes,
           .cluster = cluster,
           .early = true},
          launch.stream, f);
  return true;
}

template <class T, bool kAlongK>
bool launch_rows(const WgmmaLaunch& launch) {
  const std::int64_t m = launch.problem.m;
  return m <= 16   ? launch_shape<T, FewRowsShape<kAlongK, 1>>(launch)
         : m <= 32 ? launch_shape<T, FewRowsShape<kAlongK, 2>>(launch)
         : m <= 64 ? launch_shape<T, FewRowsShape<kAlongK, 4>>(launch)
                   : launch_shape<T, FewRowsShape<kAlongK, 8>>(launch);
}

template <class T>
bool launch_type(const WgmmaLaunch& launch) {
  return launch.plan.b.k_major ? launch_rows<T, true>(launch) : launch_rows<T, false>(launch);
}

}  // namespace

bool launch_few_rows(const WgmmaLaunch& launch) {
  return launch.problem.dtype == DType::f16 ? launch_type<half>(launch) : launch_type<bf16>(launch);
}

}  // namespace xgemm::matmul
