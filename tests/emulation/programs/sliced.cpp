// csrc/matmul/sliced, host code and kernels, against products in double: random sizes, strides, batches and epilogues; K split
// over a cluster.
#include "matmul/launch.h"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

constexpr DeviceProperties kGpu{.major = 9, .sm_count = 132, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};

/// A random size; half of them allow vector loads.
int size(Random& random, int most) {
  const int x = random(1, most);
  return random.one_in(2) ? (x + 3) / 4 * 4 : x;
}

void check(std::uint64_t seed) {
  Random random{seed * 7919 + 2};
  const int m = random.one_in(4) ? random(1, 4) : size(random, random.one_in(3) ? 140 : 40),
            n = random.one_in(4) ? random(1, 4) : size(random, random.one_in(3) ? 140 : 40),
            k = size(random, random.one_in(2)   ? 60
                             : random.one_in(2) ? 500
                                                : 2100);
  const RandomProduct<float> product(random, {}, m, n, k, seed);
  const auto& tile = kSlicedTiles[seed % kSlicedTiles.size()];
  auto plan = *offer_sliced({product.problem, kGpu, tile.name});
  const std::int64_t chunks = (k + kSlicedDepth - 1) / kSlicedDepth;
  if (!plan.apart)
    plan.splits = random(1, static_cast<int>(std::clamp<std::int64_t>(chunks / kSlicedWarps, 1, kSlicedMaxSplits)));
  emulation::launch_options() = {.seed = seed};
  product.check(std::string(tile.name) + "/" + std::to_string(plan.splits) + " seed " + std::to_string(seed), 0x1p-40,
                [&](const Problem& p) { launch_sliced(p, plan, nullptr); });
}

}  // namespace

int main(int argc, char** argv) { return run_seeds(argc, argv, check); }
