// csrc/matmul/mma, host code and kernels, against products in double: random sizes, strides, bases, batches and epilogues. Half
// precision, fp32 in tf32 (K is split in one of three cases), and large.cuh's tiles in half precision (operands in place, one
// split).
#include "matmul/mma/kernel.cuh"
#include "matmul/mma/large.cuh"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

template <class T, MmaTile kTile>
void check(std::uint64_t seed) {
  Random random{seed * 7919 + static_cast<std::uint64_t>(kTile)};
  constexpr TileInfo kInfo = info(kTile);
  const int m = random(1, 2 * kInfo.m), n = random(1, 2 * kInfo.n), k = random(1, random.one_in(3) ? 600 : 140);
  const std::int64_t blocks = ceil_div(k, kMmaRowBytes / static_cast<int>(sizeof(T)));
  const RandomProduct<T> product(random, {.any_strides = false}, m, n, k, seed);
  Problem asked = product.problem;
  asked.precision = Precision::high;
  auto plan = offer_mma({asked, hopper(4), kInfo.name});
  if (!plan) return;  // an operand of which neither stride is 1
  const std::int64_t tiles = ceil_div(m, kInfo.m) * ceil_div(n, kInfo.n) * asked.batches;
  plan->split_blocks = is_tf32(kTile) && random.one_in(3) ? random(1, static_cast<int>(blocks)) : blocks;
  plan->splits = ceil_div(blocks, plan->split_blocks);
  Buffer<std::uint64_t> meetings(tiles, 0);
  Buffer<float> partials(tiles * plan->splits * kInfo.m * kInfo.n, NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = plan->splits > 1};
  const double error = is_tf32(kTile) ? 0x1p-10 : k * 0x1p-24;
  product.check(text(kInfo.name, " seed ", seed), error,
                [&](const Problem& p) { launch_mma_tile<T, kTile>(p, *plan, meetings.data(), partials.data(), nullptr); });
  require_zeros(meetings);
}

/// False: an operand would be copied first.
template <class T, LargeTile kTile>
bool check_large(std::uint64_t seed) {
  Random random{seed * 7919 + static_cast<std::uint64_t>(kTile)};
  constexpr TileInfo kInfo = info(kTile);
  const DeviceProperties gpu{.major = 8, .sm_count = 4, .smem_per_block = 163 * 1024, .smem_per_sm = 164 * 1024};
  const int m = random(1, 2 * kInfo.m), n = random(1, kInfo.n + 20), k = random(1, random.one_in(3) ? 600 : 140);
  const RandomProduct<T> product(random, {.any_strides = false, .aligned_one_in = 1}, m, n, k, seed);
  auto plan = offer_large({product.problem, gpu, kInfo.name});
  if (plan->a.copied || plan->b.copied) return false;
  plan->splits = 1, plan->split_blocks = ceil_div(k, kInfo.k);
  emulation::launch_options() = {.seed = seed};
  product.check(text(kInfo.name, " seed ", seed), k * 0x1p-24, [&](const Problem& p) {
    launch_large_tile<T, kTile, 1>(*plan, large_arguments(p, *plan, nullptr, nullptr), nullptr);
  });
  return true;
}

/// The first product of a few whose operands lie in place.
template <class T, LargeTile kTile>
void check_one_large(std::uint64_t seed) {
  for (std::uint64_t other = 0; other < 64; ++other)
    if (check_large<T, kTile>(64 * seed + other)) return;
  require(false, "a product whose operands lie in place");
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check<half, MmaTile::t16x64>(seed);
    check<bf16, MmaTile::t64x64>(seed);
    check<float, MmaTile::tf32_64x64>(seed);
    check<float, MmaTile::tf32_64x128>(seed);
    check_one_large<half, LargeTile::t128x128>(seed);
    check_one_large<bf16, LargeTile::t64x64>(seed);
  });
}
