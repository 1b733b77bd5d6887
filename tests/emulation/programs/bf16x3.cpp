// csrc/matmul/bf16x3/kernel.cu, host code and kernels (except the fallback's), against products in double: random sizes,
// strides, batches and epilogues, a tile's k-blocks in one CTA and split over several.
#include "matmul/launch.h"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

void check(std::uint64_t seed) {
  Random random{seed * 7919 + 3};
  const int m = random(1, 150), n = random(1, 280), k = random(1, random.one_in(2) ? 520 : 130);
  const RandomProduct<float> product(random, {}, m, n, k, seed);
  const DeviceProperties gpu{.major = 9, .sm_count = random(1, 6), .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
  const auto plan = offer_bf16x3({product.problem, gpu, "bf16x3"});
  require(plan.has_value(), "a plan");
  Buffer<unsigned char> counters(static_cast<std::size_t>(plan->counter_bytes) + 16);
  Buffer<float> partials(static_cast<std::size_t>(plan->partial_bytes / 4 + 1), NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = true};
  product.check("seed " + std::to_string(seed), 0x1p-20, [&](const Problem& p) {
    require(launch_bf16x3(p, *plan, counters.data(), partials.data(), nullptr), "a launch");
  });
  for (std::size_t i = 0; i < counters.size(); ++i) require(counters[i] == 0, "clean counters");
}

}  // namespace

int main(int argc, char** argv) { return run_seeds(argc, argv, check); }
