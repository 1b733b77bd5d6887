// Host side of kernels/few_rows.cuh.
#include "matmul/kernels/few_rows.cuh"
#include "matmul/kernels/pack.cuh"
#include "matmul/kernels/wgmma_launch.cuh"

namespace xgemm::matmul {
namespace {

template <int kTileN, bool kKMajorB>
struct FewRowsConfig {
  static constexpr int kBlocks = 64 / kTileN, kGroups = 3;
  static constexpr int kSlotBytes = kBlocks * (64 + (kKMajorB ? kTileN : 64)) * 128;
  static constexpr int kStages = 2 * kGroups;  // a slot is one group's; L1 keeps the rest, for what is on its way
  static constexpr int kThreads = 128 * (1 + kGroups) + 32;
  static constexpr WgmmaConfig kValue{.tile_m = 64,
                                      .tile_n = kTileN,
                                      .blocks = kBlocks,
                                      .stages = kStages,
                                      .k_major_a = true,
                                      .k_major_b = kKMajorB,
                                      .group = 12};
  static constexpr int kSharedBytes = kStages * kSlotBytes + (2 * kStages + 1) * 8 + 1024;
};

template <class T, class Config>
bool launch_config(const WgmmaLaunch& launch) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  const Problem& p = launch.problem;
  const TensorPlan& plan = launch.plan;
  FewRowsArguments f{};
  WgmmaArguments& g = f.g;
  g.problem = p;
  g.batch_step_a = plan.a.batch_step;
  g.split_blocks = static_cast<int>(plan.split_length / kWgmmaTileK);
  g.splits = static_cast<int>(plan.splits), g.cluster = static_cast<int>(plan.cluster), g.spread = 1;
  g.rows = static_cast<int>((p.m + 63) / 64), g.tile_columns = static_cast<int>(plan.columns);
  g.columns = static_cast<int>((p.n + plan.columns - 1) / plan.columns);
  g.tiles = static_cast<int>(g.rows * g.columns * p.batches);
  const int rows_a = static_cast<int>(std::min<std::int64_t>(64, (p.m + 7) / 8 * 8));
  g.slot_bytes = kConfig.blocks * rows_a * 128;
  if (!make_tensor_map(g.a, {.data = plan.a.copied ? launch.workspace + plan.a.copy : p.a.data,
                             .dtype = p.dtype,
                             .sizes = {plan.a.inner, plan.a.other, plan.a.batches},
                             .strides = {plan.a.ld, plan.a.plane},
                             .box = {kWgmmaTileK, rows_a},
                             .swizzle_bytes = 128}))
    return false;
  choose_store<T, Config>(g, plan);
  g.shares_bias = g.boxes && p.bias.data;
  const bool along_k = plan.b.k_major;
  f.b = static_cast<const std::uint16_t*>(p.b.data);
  f.b_stride = along_k ? p.b.col_stride : p.b.row_stride;
  f.b_end = end_of<std::uint16_t>(p, p.b, plan.b.inner, 1, plan.b.other, f.b_stride);
  f.after_copy = plan.a.copied;
  constexpr auto kKernel = few_rows<T, T, Config>;
  if (!allow_shared<kKernel, Config::kSharedBytes>()) return false;
  const auto cluster = static_cast<unsigned>(plan.cluster);
  enqueue(kKernel,
          {.blocks = dim3(static_cast<unsigned>(g.tiles * plan.cluster)),
           .threads = dim3(Config::kThreads),
           .shared_bytes = Config::kSharedBytes,
           .cluster = cluster,
           .early = true},
          launch.stream, f);
  return true;
}

template <class T>
bool launch_type(const WgmmaLaunch& launch) {
  const bool along_k = launch.plan.b.k_major;
  if (launch.plan.tile == TensorTile::few_rows_32)
    return along_k ? launch_config<T, FewRowsConfig<32, true>>(launch) : launch_config<T, FewRowsConfig<32, false>>(launch);
  return along_k ? launch_config<T, FewRowsConfig<64, true>>(launch) : launch_config<T, FewRowsConfig<64, false>>(launch);
}

}  // namespace

bool launch_few_rows(const WgmmaLaunch& launch) {
  return launch.problem.dtype == DType::f16 ? launch_type<half>(launch) : launch_type<bf16>(launch);
}

}  // namespace xgemm::matmul
