// csrc/matmul/tf32/launch.cu, host code and kernels, against products in double: ragged sizes, all layouts (of two MN-major
// operands one is packed), split-K over CTAs, every epilogue; and random problems, also with operands that TMA cannot load.
#include "matmul/tf32/launch.cu"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

struct Case {
  const char* tile;
  int m, n, k, batch;
  bool k_major_a, k_major_b, epilogue;
};

void check(const Case& c, std::uint64_t seed) {
  const auto size = [](int x, int y) { return static_cast<std::size_t>(x) * static_cast<std::size_t>(y); };
  const int lda = (c.k_major_a ? c.k : c.m) + 3 & ~3, ldb = (c.k_major_b ? c.k : c.n) + 3 & ~3;
  const int other_a = c.k_major_a ? c.m : c.k, other_b = c.k_major_b ? c.n : c.k;
  const Buffer<float> a = random_numbers<float>(size(lda * other_a, c.batch), seed),
                      b = random_numbers<float>(size(ldb, other_b), seed + 1), bias = random_numbers<float>(c.n, seed + 2),
                      residual = random_numbers<float>(size(c.m * c.n, c.batch), seed + 3);
  Buffer<float> out(size(c.m * c.n, c.batch), NAN);
  Problem p;
  p.precision = Precision::high;
  p.m = c.m, p.n = c.n, p.k = c.k, p.batches = c.batch, p.batch_dims = 1, p.batch[0] = c.batch;
  p.a = {a.data(), c.k_major_a ? lda : 1, c.k_major_a ? 1 : lda, {lda * other_a}};
  p.b = {b.data(), c.k_major_b ? 1 : ldb, c.k_major_b ? ldb : 1, {0}};
  p.bias = {bias.data(), 0, 1};
  if (c.epilogue) p.residual = {residual.data(), c.n, 1, {c.m * c.n}}, p.activation = Activation::relu, p.alpha = 0.5;
  p.out = out.data();
  DeviceProperties gpu{};
  gpu.major = 9, gpu.sm_count = 6;
  const auto plan = offer_tf32({p, gpu, c.tile});
  require(plan && plan->a.copied + plan->b.copied == (c.k_major_a || c.k_major_b ? 0 : 1), "a plan");
  Buffer<unsigned char> workspace(plan->workspace_bytes + 256);
  Buffer<unsigned> counters(plan->counter_bytes / 4 + 1);
  Buffer<float> partials(plan->partial_bytes / 4 + 1, NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = true};
  require(launch_tf32(p, *plan, workspace.data(), counters.data(), partials.data(), nullptr), "a launch");
  std::vector<double> expected(out.size()), allowed(out.size());
  for (int batch = 0; batch < c.batch; ++batch)
    for (int i = 0; i < c.m; ++i)
      for (int j = 0; j < c.n; ++j) {
        double sum = 0, most = 0;
        for (int k = 0; k < c.k; ++k) {
          const double x = tf32(a[lda * other_a * batch + (c.k_major_a ? i * lda + k : k * lda + i)]) *
                           tf32(b[c.k_major_b ? j * ldb + k : k * ldb + j]);
          sum += x, most += std::abs(x);
        }
        const std::size_t at = static_cast<std::size_t>((batch * c.m + i) * c.n + j);
        double y = p.alpha * sum + bias[j];
        if (c.epilogue) y = std::max(y, 0.) + residual[at];
        expected[at] = y, allowed[at] = 1e-6 * (most + 2);
      }
  require_close(out, expected, allowed,
                std::string(c.tile) + " split " + std::to_string(plan->splits) + " seed " + std::to_string(seed));
}

void check_any(std::uint64_t seed) {
  Random random{seed * 7919 + 4};
  const int k = random(1, random.one_in(2) ? 400 : 40);
  // All CTAs run at once, including those that pack: so there must not be too many.
  const RandomProduct<float> product(random, {.few_batches = k < 128}, random(1, 150), random(1, 150), k, seed);
  Problem asked = product.problem;
  asked.precision = Precision::high;
  const DeviceProperties gpu{.major = 9, .sm_count = random(1, 8)};
  const auto plan = offer_tf32({asked, gpu, kTf32Tiles[seed % kTf32Tiles.size()].name});
  require(plan.has_value(), "a plan");
  Buffer<unsigned char> workspace(static_cast<std::size_t>(plan->workspace_bytes), 0xff);  // NaN
  Buffer<unsigned> counters(static_cast<std::size_t>(plan->counter_bytes / 4 + 1));
  Buffer<float> partials(static_cast<std::size_t>(plan->partial_bytes / 4 + 1), NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = true};
  product.check(std::string(info(plan->tile).name) + " seed " + std::to_string(seed), 0x1p-10, [&](const Problem& p) {
    require(launch_tf32(p, *plan, workspace.data(), counters.data(), partials.data(), nullptr), "a launch");
  });
  for (std::size_t i = 0; i < counters.size(); ++i) require(counters[i] == 0, "clean counters");
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check_any(seed);
    check({"tf32_64x64x128", 61, 70, 300, 1, true, true, false}, seed);
    check({"tf32_64x64x128", 61, 67, 140, 2, false, true, true}, seed);
    check({"tf32_128x128x32", 140, 133, 100, 1, true, false, true}, seed);
    check({"tf32_64x128x64", 70, 129, 97, 1, true, true, true}, seed);
    check({"tf32_64x64x128", 61, 70, 140, 2, false, false, true}, seed);  // copies B
    check({"tf32_64x64x128", 20, 70, 97, 2, false, false, false}, seed);  // copies A, of a batch
  });
}
