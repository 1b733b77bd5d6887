// Host side of kernels/wgmma_gemm.cuh: tensor maps, grid, choice of instantiation.
#pragma once
#include <algorithm>

#include "device/tensor_map.h"
#include "matmul/kernels/wgmma_gemm.cuh"
#include "matmul/tensor_launch.h"

namespace xgemm::matmul {

/// The instantiations of one kind of operands. Slots fill shared memory beside the staging of C. Groups keep the operands of a wave of
/// 132 tiles in L2: 16 rows of tiles by 8 wide ones, 12 by 11 narrower ones.
template <int kTileN, int kParts, bool kScaled, bool kKMajorA, bool kKMajorB>
struct WgmmaInstance {
  static constexpr int kSlotBytes = (kParts == 2 ? 2 : 1) * (kWgmmaTileM + kTileN) * 128;
  static constexpr WgmmaConfig kValue{.tile_n = kTileN,
                                      .stages = std::min(8, 192 * 1024 / kSlotBytes),
                                      .k_major_a = kKMajorA,
                                      .k_major_b = kKMajorB,
                                      .group = kTileN == kLargeTile ? 16 : 12,
                                      .parts = kParts,
                                      .scaled = kScaled,
                                      .chunked = kTileN != kLargeTile};
};

template <class Element, class Out, class Config>
bool launch_wgmma(const WgmmaLaunch& launch) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  using Boxes = WgmmaBoxes<Config>;
  const Problem& p = launch.problem;
  const TensorPlan& plan = launch.plan;
  const auto in_workspace = [&](std::int64_t offset) { return launch.workspace + offset; };
  WgmmaArguments g{};
  g.problem = p;
  g.batch_step_a = plan.a.batch_step, g.batch_step_b = plan.b.batch_step;
  g.chunk_blocks = static_cast<int>(plan.chunk / kWgmmaTileK);
  g.chunks = static_cast<int>(plan.chunks), g.splits = static_cast<int>(plan.splits);
  g.partial = reinterpret_cast<float*>(in_workspace(plan.partial));
  g.counters = reinterpret_cast<unsigned*>(in_workspace(plan.counters));
  g.lines_a = reinterpret_cast<const LineStats*>(in_workspace(plan.a.stats));
  g.lines_b = reinterpret_cast<const LineStats*>(in_workspace(plan.b.stats));
  const auto operand_map = [&](CUtensorMap& map, const TensorOperand& x, const void* data, const int (&box)[2]) {
    return make_tensor_map(map, {.data = x.copied ? in_workspace(x.copy) : data,
                                 .dtype = std::is_same_v<Element, half> ? DType::f16 : DType::bf16,
                                 .sizes = {x.inner, x.other, x.batches * kConfig.parts},
                                 .strides = {x.ld, x.plane},
                                 .box = {box[0], box[1]},
                                 .swizzle_bytes = 128});
  };
  if (!operand_map(g.a, plan.a, p.a.data, Boxes::kBoxA) || !operand_map(g.b, plan.b, p.b.data, Boxes::kBoxB)) return false;
  const bool simple = !p.c.data && !p.residual.data && p.activation == Activation::none;
  g.boxes = simple && tensor_map_possible(p.out, p.dtype, p.n, p.m * p.n) &&
            make_tensor_map(g.out, {.data = p.out,
                                    .dtype = p.dtype,
                                    .sizes = {p.n, p.m, p.batches},
                                    .strides = {p.n, p.m * p.n},
                                    .box = {128 / static_cast<int>(sizeof(Out)), 16},
                                    .swizzle_bytes = 128});

  const auto kernel = wgmma_gemm<Element, Out, Config>;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Boxes::kSharedBytes) != cudaSuccess) return false;
  if (plan.splits > 1)
    cudaMemsetAsync(in_workspace(plan.counters), 0, static_cast<std::size_t>(plan.counter_bytes), launch.stream);
  const std::int64_t items =
      (p.m + kWgmmaTileM - 1) / kWgmmaTileM * ((p.n + kConfig.tile_n - 1) / kConfig.tile_n) * p.batches * plan.splits;
  kernel<<<static_cast<unsigned>(std::min<std::int64_t>(items, launch.sm_count)), kWgmmaThreads, Boxes::kSharedBytes, launch.stream>>>(g);
  return true;
}

/// Picks the instantiation for the operands' layouts.
template <class Element, class Out, int kTileN, int kParts, bool kScaled>
bool launch_layout(const WgmmaLaunch& launch) {
  const bool a = launch.plan.a.k_major, b = launch.plan.b.k_major;
  if (a && b) return launch_wgmma<Element, Out, WgmmaInstance<kTileN, kParts, kScaled, true, true>>(launch);
  if (a) return launch_wgmma<Element, Out, WgmmaInstance<kTileN, kParts, kScaled, true, false>>(launch);
  if (b) return launch_wgmma<Element, Out, WgmmaInstance<kTileN, kParts, kScaled, false, true>>(launch);
  return launch_wgmma<Element, Out, WgmmaInstance<kTileN, kParts, kScaled, false, false>>(launch);
}

}  // namespace xgemm::matmul
