#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/fp16_split/pack.cuh"
#include "matmul/launch.h"
#include "matmul/operand_map.h"
#include "matmul/tf32/kernel.cuh"

namespace xgemm::matmul {
namespace {

template <Tf32Tile kTile, bool kKMajorX>
struct Tf32Instance {
  static constexpr Tf32Config kValue{.tile = kTile, .k_major_x = kKMajorX};
};

template <class Instance>
bool launch(const Tf32Arguments& g, unsigned ctas, cudaStream_t stream) {
  return enqueue_with_shared<tf32_gemm<Instance>, tf32_detail::Shared<Instance>::kBytes>(
      {.blocks = ctas, .threads = Instance::kValue.threads(), .early = true}, stream, g);
}

}  // namespace

bool launch_tf32(const Problem& p, const Tf32Plan& plan, unsigned char* workspace, void* counters, float* partials,
                 cudaStream_t stream) {
  const TileInfo& tile = info(plan.tile);
  const int depth = tile.k;
  Tf32Arguments g{};
  describe_tiles(g, p, plan, counters, partials);
  const TensorOperand &x = plan.swap_ab ? plan.b : plan.a, &y = plan.swap_ab ? plan.a : plan.b;
  const bool k_major_x = x.k_major;
  // Boxes end with the last line, rounded up to 8. Stale shared memory past it affects only sums that are not stored.
  const auto box = [](int size, std::int64_t lines) {
    return static_cast<int>(std::min<std::int64_t>(size, round_up(lines, 8)));
  };
  const int box_x = k_major_x ? box(tile.m, plan.swap_ab ? p.n : p.m) : tile.m, box_y = box(tile.n, plan.swap_ab ? p.m : p.n);
  const bool columns = p.n % 4 == 0;  // quads of C begin at multiples of 16 bytes
  g.last_x = last_tile(k_major_x && (columns || !plan.swap_ab), plan.swap_ab ? p.n : p.m, tile.m);
  g.last_y = last_tile(columns || plan.swap_ab, plan.swap_ab ? p.m : p.n, tile.n);
  g.slot_bytes = (box_x + box_y) * depth * 4;
  const auto map = [&](CUtensorMap& to, const TensorOperand& t, const Operand& operand, int lines) {
    return make_operand_map(to, p, operand, t, workspace, DType::f32, 32, t.k_major ? lines : depth, 1, true);
  };
  if (!map(g.x, x, plan.swap_ab ? p.b : p.a, box_x) || !map(g.y, y, plan.swap_ab ? p.a : p.b, box_y)) return false;
  launch_pack(p, pack_operand<std::uint32_t>(p, lines_of_a(p), plan.a, workspace),
              pack_operand<std::uint32_t>(p, lines_of_b(p), plan.b, workspace), stream);
  const auto ctas = static_cast<unsigned>(plan.ctas);
  return dispatch_tile<kTf32Tiles.size()>(plan.tile, [&]<Tf32Tile kTile>() {
    return k_major_x ? launch<Tf32Instance<kTile, true>>(g, ctas, stream) : launch<Tf32Instance<kTile, false>>(g, ctas, stream);
  });
}

}  // namespace xgemm::matmul
