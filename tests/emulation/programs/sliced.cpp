// csrc/matmul/sliced and gemv's sweep, host code and kernels, against products in double: random sizes, strides, batches and
// epilogues; K split over a cluster. A row of a sweep has the same bits alone.
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

/// A row of the first batch, computed alone by `launch`, has its bits of `out`.
template <class Launch>
void check_row_alone(const RandomProduct<float>& product, const Buffer<float>& out, std::int64_t row, const std::string& text,
                     const Launch& launch) {
  Problem p = product.problem;
  const auto shifted = [&](Operand& x) {
    if (x.data) x.data = static_cast<const float*>(x.data) + row * x.row_stride;
  };
  shifted(p.a), shifted(p.c), shifted(p.residual);
  p.m = 1, p.batches = 1, p.batch_dims = 0;
  for (auto& size : p.batch) size = 1;
  const Buffer<float> alone(static_cast<std::size_t>(p.n), NAN);
  p.out = alone.data();
  launch(p);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const float x = alone[i], y = out[static_cast<std::size_t>(row * p.n) + i];
    require(x == y || (x != x && y != y), "equal bits of row " + std::to_string(row) + ": " + text + " " + product.name());
  }
}

void check(std::uint64_t seed) {
  Random random{seed * 7919 + 2};
  const bool few = random.one_in(2);
  int m = size(random, random.one_in(3) ? 140 : 40), n = size(random, random.one_in(3) ? 140 : 40);
  if (few) {
    (random.one_in(2) ? m : n) = random(1, 4);
    if (random.one_in(2)) (m > n ? m : n) = 32 + size(random, 260);
  }
  const int k = size(random, random.one_in(2) ? 60 : random.one_in(2) ? 500 : 2100);
  const RandomProduct<float> product(random, {}, m, n, k, seed);
  const Problem& p = product.problem;
  const std::string text = " seed " + std::to_string(seed);
  emulation::launch_options() = {.seed = seed};
  const auto& tile = kSlicedTiles[seed % 2];
  auto sliced = *plan_sliced(p, kGpu, std::string(tile.name) + (random.one_in(2) ? "_apart" : ""));
  const std::int64_t chunks = (k + kSlicedDepth - 1) / kSlicedDepth;
  if (!sliced.apart)
    sliced.splits = random(1, static_cast<int>(std::clamp<std::int64_t>(chunks / kSlicedWarps, 1, kSlicedMaxSplits)));
  product.check(std::string(tile.name) + (sliced.apart ? "_apart" : "/" + std::to_string(sliced.splits)) + text, 0x1p-40,
                [&](const Problem& x) { launch_sliced(x, sliced, nullptr); });
  const std::int64_t row = random(0, m - 1);
  auto plan = plan_gemv(p, kGpu, "sweep");
  if (!plan) return;
  plan->many = random.one_in(2);
  const std::string name = "sweep/" + std::to_string(plan->splits) + (plan->many ? " many" : "") + text;
  const auto out = product.check(name, k * 0x1p-26 + 0x1p-23, [&](const Problem& x) { launch_sweep(x, *plan, nullptr); });
  if (m <= kGemvLines && p.b.col_stride == 1)
    check_row_alone(product, out, row, name, [&](const Problem& x) { launch_sweep(x, *plan_gemv(x, kGpu, "sweep"), nullptr); });
}

}  // namespace

int main(int argc, char** argv) { return run_seeds(argc, argv, check); }
