// fp32's own kernels in csrc/matmul (sliced, bf16x3 but for its fallback, tf32), host code and kernels, against products in
// double: random sizes, strides, batches and epilogues.
#include "matmul/launch.h"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

/// A random size; half of them allow vector loads.
int size(Random& random, int most) {
  const int x = random(1, most);
  return random.one_in(2) ? (x + 3) / 4 * 4 : x;
}

/// K split over a cluster.
void check_sliced(std::uint64_t seed) {
  Random random{seed * 7919 + 2};
  const int m = random.one_in(4) ? random(1, 4) : size(random, random.one_in(3) ? 140 : 40),
            n = random.one_in(4) ? random(1, 4) : size(random, random.one_in(3) ? 140 : 40),
            k = size(random, random.one_in(2)   ? 60
                             : random.one_in(2) ? 500
                                                : 2100);
  const RandomProduct<float> product(random, {}, m, n, k, seed);
  const auto& tile = kSlicedTiles[seed % kSlicedTiles.size()];
  auto plan = *offer_sliced({product.problem, hopper(132), tile.name});
  const std::int64_t chunks = (k + kSlicedDepth - 1) / kSlicedDepth;
  if (!plan.apart)
    plan.splits = random(1, static_cast<int>(std::clamp<std::int64_t>(chunks / kSlicedWarps, 1, kSlicedMaxSplits)));
  emulation::launch_options() = {.seed = seed};
  product.check(text(tile.name, "/", plan.splits, " seed ", seed), 0x1p-40,
                [&](const Problem& p) { launch_sliced(p, plan, nullptr); });
}

/// A tile's k-blocks in one CTA and split over several.
void check_bf16x3(std::uint64_t seed) {
  Random random{seed * 7919 + 3};
  const int m = random(1, 150), n = random(1, 280), k = random(1, random.one_in(2) ? 520 : 130);
  const RandomProduct<float> product(random, {}, m, n, k, seed);
  const auto plan = offer_bf16x3({product.problem, hopper(random(1, 6)), "bf16x3"});
  require(plan.has_value(), "a plan");
  Buffer<unsigned char> counters(plan->counter_bytes + 16);
  Buffer<float> partials(plan->partial_bytes / 4 + 1, NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = true};
  product.check(text("bf16x3 seed ", seed), 0x1p-20, [&](const Problem& p) {
    require(launch_bf16x3(p, *plan, counters.data(), partials.data(), nullptr), "a launch");
  });
  require_zeros(counters);
}

/// Against products of operands rounded to tf32. `whole`: strides of whole 16 bytes, which TMA can load; else one of two MN-major
/// operands is packed. K split over CTAs.
void check_tf32(std::uint64_t seed, bool whole) {
  Random random{seed * 7919 + 4 + whole};
  const int k = random(1, random.one_in(2) ? 400 : 40);
  // All CTAs run at once, including those that pack: so there must not be too many.
  const RandomProduct<float> product(random, {.any_strides = !whole, .few_batches = k < 128, .aligned_one_in = whole ? 1 : 2},
                                     random(1, 150), random(1, 150), k, seed);
  Problem asked = product.problem;
  asked.precision = Precision::high;
  const auto plan = offer_tf32({asked, hopper(random(1, 8)), kTf32Tiles[seed % kTf32Tiles.size()].name});
  require(plan.has_value(), "a plan");
  Buffer<unsigned char> workspace(plan->workspace_bytes, 0xff);  // NaN
  Buffer<unsigned> counters(plan->counter_bytes / 4 + 1);
  Buffer<float> partials(plan->partial_bytes / 4 + 1, NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = true};
  const auto launch = [&](const Problem& p) {
    require(launch_tf32(p, *plan, workspace.data(), counters.data(), partials.data(), nullptr), "a launch");
  };
  product.check(text(info(plan->tile).name, " splits ", plan->splits, " seed ", seed), 0x1p-20, launch, tf32);
  require_zeros(counters);
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [](std::uint64_t seed) {
    check_sliced(seed), check_bf16x3(seed);
    check_tf32(seed, false), check_tf32(seed, true);
  });
}
