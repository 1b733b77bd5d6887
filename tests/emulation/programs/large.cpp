// csrc/matmul/mma/large.cuh in half precision against products in double: random sizes, layouts, batches and epilogues, operands
// in place; K in one split.
#include "matmul/mma/large.cuh"

#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

constexpr DeviceProperties kGpu{.major = 8, .sm_count = 4, .smem_per_block = 163 * 1024, .smem_per_sm = 164 * 1024};

/// False: an operand would be copied first.
template <class T, LargeTile kTile>
bool check(std::uint64_t seed) {
  Random random{seed * 7919 + static_cast<std::uint64_t>(kTile)};
  constexpr TileInfo kInfo = info(kTile);
  const int m = random(1, 2 * kInfo.m), n = random(1, kInfo.n + 20), k = random(1, random.one_in(3) ? 600 : 140);
  const RandomProduct<T> product(random, {.any_strides = false, .aligned_one_in = 1}, m, n, k, seed);
  auto plan = offer_large({product.problem, kGpu, kInfo.name});
  if (plan->a.copied || plan->b.copied) return false;
  plan->splits = 1, plan->split_blocks = ceil_div(k, kInfo.k);
  emulation::launch_options() = {.seed = seed};
  product.check(std::string(kInfo.name) + " seed " + std::to_string(seed), k * 0x1p-24, [&](const Problem& p) {
    launch_large_tile<T, kTile, 1>(*plan, large_arguments(p, *plan, nullptr, nullptr), nullptr);
  });
  return true;
}

/// The first product of a few whose operands lie in place.
template <class T, LargeTile kTile>
void check_one(std::uint64_t seed) {
  for (std::uint64_t other = 0; other < 64; ++other)
    if (check<T, kTile>(64 * seed + other)) return;
  require(false, "a product whose operands lie in place");
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check_one<half, LargeTile::t128x128>(seed);
    check_one<bf16, LargeTile::t64x64>(seed);
  });
}
