#include <climits>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/launch.h"
#include "matmul/operand_map.h"
#include "matmul/presplit/kernel.cuh"
#include "matmul/presplit/split.cuh"

namespace xgemm::matmul {
namespace {

template <PresplitTile kTile>
struct PresplitInstance {
  static constexpr PresplitConfig kValue{.tile = kTile};
};

template <class Instance>
bool launch(const PresplitArguments& g, unsigned ctas, cudaStream_t stream) {
  return enqueue_with_shared<presplit_gemm<Instance>, presplit::Shared<Instance>::kBytes>(
      {.blocks = ctas, .threads = Instance::kValue.threads(), .early = true}, stream, g);
}

void launch_pass(const Problem& p, const PresplitPlan& plan, unsigned char* workspace, cudaStream_t stream) {
  SplitPartsArguments g{.batch_dims = p.batch_dims, .batch = {}, .operands = {}, .units_k = 0, .first = 0};
  std::copy_n(p.batch, kMaxBatchDims, g.batch);
  g.units_k = static_cast<unsigned>(presplit_units(p.k));
  const auto describe = [&](SplitOperand& to, const OperandLines& x, const TensorOperand& t) {
    to = {.operand = x.operand,
          .line_stride = x.stride,
          .k_stride = x.k_stride,
          .parts = reinterpret_cast<__nv_bfloat16*>(workspace + t.copy),
          .lost = workspace + t.stats,
          .ld = t.ld,
          .plane = t.plane,
          .lines = static_cast<int>(x.count),
          .k = static_cast<int>(p.k),
          .units = static_cast<unsigned>(presplit_units(x.count))};
    return to.units * g.units_k * static_cast<unsigned>(t.batches);
  };
  g.first = describe(g.operands[0], lines_of_a(p), plan.a);
  const unsigned second = describe(g.operands[1], lines_of_b(p), plan.b);
  enqueue(split_in_parts, {.blocks = dim3(g.first + second), .threads = dim3(kSplitPartsThreads), .early = true}, stream, g);
}

}  // namespace

bool launch_presplit(const Problem& p, const PresplitPlan& plan, unsigned char* workspace, unsigned* counters, float* partials,
                     cudaStream_t stream) {
  const PresplitTileInfo& tile = info(plan.tile);
  PresplitArguments g{};
  describe_tiles(g, p, plan, false, counters, partials);
  g.last_x = g.last_y = INT_MAX;
  g.lost_x = workspace + plan.a.stats, g.lost_y = workspace + plan.b.stats;
  g.units_x = static_cast<unsigned>(presplit_units(p.m)), g.units_y = static_cast<unsigned>(presplit_units(p.n));
  const auto map = [&](CUtensorMap& to, const TensorOperand& t, const Operand& operand, int lines) {
    return make_operand_map(to, p, operand, t, workspace, DType::bf16, presplit::kSlotK, lines, kPresplitParts);
  };
  if (!map(g.x, plan.a, p.a, tile.x) || !map(g.y, plan.b, p.b, tile.y)) return false;
  launch_pass(p, plan, workspace, stream);
  const auto ctas = static_cast<unsigned>(plan.ctas);
  return dispatch_tile<kPresplitTiles.size()>(
      plan.tile, [&]<PresplitTile kTile>() { return launch<PresplitInstance<kTile>>(g, ctas, stream); });
}

}  // namespace xgemm::matmul
