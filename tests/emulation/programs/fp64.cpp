// csrc/matmul/fp64_mma/kernel.cu, host code and kernels, against products in double: random sizes, strides, batches and
// epilogues; every tile, segments added by one CTA and by several, and a row alone, with the same bits; free splits.
#include "matmul/fp64_mma/kernel.cu"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

/// `share` segments per CTA, or k-blocks of a problem that is not batch-invariant.
void launch(const Problem& p, std::string_view tile, std::int64_t share, std::uint64_t seed) {
  auto plan = offer_fp64({p, hopper(4), tile});
  require(plan.has_value(), "plan");
  const std::int64_t of_cta = std::min(plan->blocks, share * (p.batch_invariant ? plan->segment : 1));
  if (!p.batch_invariant) plan->segment = of_cta;
  plan->split_blocks = of_cta, plan->splits = ceil_div(plan->blocks, of_cta);
  plan->workspace_bytes = plan->splits > 1 ? 8 * ceil_div(plan->blocks, plan->segment) * p.batches * p.m * p.n : 0;
  Buffer<double> workspace(plan->workspace_bytes / 8 + 1, NAN);
  emulation::launch_options() = {.seed = seed};
  launch_fp64(p, *plan, workspace.data(), nullptr);
}

void check(std::uint64_t seed) {
  Random random{seed * 7919 + 1};
  const int m = random(0, 2) ? random(1, 150) : random(1, 20), n = random.one_in(6) ? 1 : random(5, 150),
            k = random(0, 2) == 0 ? random(512, 1100) : random(1, 100);
  RandomProduct<double> product(random, {.few_batches = m * n < 5000}, m, n, k, seed);
  product.check(text("free splits, seed ", seed), 0x1p-52 * std::sqrt(k),
                [&](const Problem& p) { launch(p, kFp64Tiles[seed % kFp64Tiles.size()].name, random(1, 40), seed); });
  if (n == 1) return;  // batch-invariant: gemv's
  product.problem.batch_invariant = true;
  std::optional<Buffer<double>> first;
  constexpr std::size_t kWithTotals = kFp64Tiles.size() - 1;  // all but the first
  for (const std::size_t tile : {seed, seed + 1 + seed / kWithTotals}) {
    const std::string_view name = kFp64Tiles[1 + tile % kWithTotals].name;
    const std::string what = text(name, " seed ", seed);
    auto out = product.check(what, 0x1p-52 * std::sqrt(k), [&](const Problem& p) { launch(p, name, random(1, 5), seed + tile); });
    if (first)
      require_same_bits(out, *first, what);
    else
      first.emplace(std::move(out));
  }
  Problem row = product.problem;
  if (row.c.data || row.residual.data) return;
  const int which = random(0, m - 1);
  Buffer<double> alone(row.batches * n), of_all(alone.size());
  row.m = 1, row.out = alone.data();
  row.a.data = static_cast<const double*>(row.a.data) + which * row.a.row_stride;
  launch(row, {}, random(1, 5), seed);
  for (std::size_t i = 0; i < of_all.size(); ++i) of_all[i] = (*first)[(i / n * m + which) * n + i % n];
  require_same_bits(alone, of_all, text("a row alone, seed ", seed));
}

}  // namespace

int main(int argc, char** argv) { return run_seeds(argc, argv, check); }
