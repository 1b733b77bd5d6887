// csrc/matmul/presplit/launch.cu, host code and both kernels, against products in double: random sizes, strides, batches and
// epilogues; K also split over several CTAs.
#include "matmul/presplit/launch.cu"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

void check(std::uint64_t seed) {
  Random random{seed * 7919 + 5};
  const int k = random(129, 700);
  // All CTAs run at once, including the pass's: so there must not be too many.
  const RandomProduct<float> product(random, {.few_batches = true}, random(1, 150), random(1, 150), k, seed);
  const DeviceProperties gpu{.major = 9, .sm_count = random(1, 8)};
  const auto plan = plan_presplit(product.problem, gpu, kPresplitTiles[seed % kPresplitTiles.size()].name);
  require(plan.has_value(), "a plan");
  Buffer<unsigned char> workspace(static_cast<std::size_t>(plan->workspace_bytes), 0xff);  // NaN
  Buffer<unsigned> counters(static_cast<std::size_t>(plan->counter_bytes / 4 + 1));
  Buffer<float> partials(static_cast<std::size_t>(plan->partial_bytes / 4 + 1), NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = true};
  product.check(std::string(info(plan->tile).name) + " seed " + std::to_string(seed), 0x1p-20, [&](const Problem& p) {
    require(launch_presplit(p, *plan, workspace.data(), counters.data(), partials.data(), nullptr), "a launch");
  });
  for (std::size_t i = 0; i < counters.size(); ++i) require(counters[i] == 0, "clean counters");
}

}  // namespace

int main(int argc, char** argv) { return run_seeds(argc, argv, check); }
