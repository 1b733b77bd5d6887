// csrc/matmul/tf32/kernel.cu, host code and kernels, against products of operands rounded to tf32: random sizes, strides (TMA
// cannot load all of them; of two MN-major operands one is packed), batches and epilogues; split-K over CTAs.
#include "matmul/tf32/kernel.cu"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

/// `whole`: strides of whole 16 bytes, which TMA can load.
void check(std::uint64_t seed, bool whole) {
  Random random{seed * 7919 + 4 + whole};
  const int k = random(1, random.one_in(2) ? 400 : 40);
  // All CTAs run at once, including those that pack: so there must not be too many.
  const RandomProduct<float> product(random, {.any_strides = !whole, .few_batches = k < 128, .aligned_one_in = whole ? 1 : 2},
                                     random(1, 150), random(1, 150), k, seed);
  Problem asked = product.problem;
  asked.precision = Precision::high;
  const DeviceProperties gpu{.major = 9, .sm_count = random(1, 8)};
  const auto plan = offer_tf32({asked, gpu, kTf32Tiles[seed % kTf32Tiles.size()].name});
  require(plan.has_value(), "a plan");
  Buffer<unsigned char> workspace(static_cast<std::size_t>(plan->workspace_bytes), 0xff);  // NaN
  Buffer<unsigned> counters(static_cast<std::size_t>(plan->counter_bytes / 4 + 1));
  Buffer<float> partials(static_cast<std::size_t>(plan->partial_bytes / 4 + 1), NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = true};
  const auto launch = [&](const Problem& p) {
    require(launch_tf32(p, *plan, workspace.data(), counters.data(), partials.data(), nullptr), "a launch");
  };
  product.check(std::string(info(plan->tile).name) + " splits " + std::to_string(plan->splits) + " seed " + std::to_string(seed),
                0x1p-20, launch, tf32);
  for (std::size_t i = 0; i < counters.size(); ++i) require(counters[i] == 0, "clean counters");
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [](std::uint64_t seed) { check(seed, false), check(seed, true); });
}
