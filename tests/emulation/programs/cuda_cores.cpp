// csrc/matmul/simt, gemv and sliced, host code and kernels, against products in double: random sizes, strides, batches and
// epilogues. The bits of simt, and of gemv unless gemv_is_exact, are those of the order that simt/plan.h promises, whatever the
// tile and the splits.
#include "matmul/launch.h"
#include "matmul/simt/launch.h"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

constexpr DeviceProperties kGpu{.major = 9, .sm_count = 132, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};

template <class T>
using Product = RandomProduct<T>;

template <class T>
bool equal(const Buffer<T>& x, const Buffer<T>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double a = number(x[i]), b = number(y[i]);
    if (a != b && (a == a || b == b)) return false;
  }
  return true;
}

/// A random size; half of them allow vector loads.
int size(Random& random, int most) {
  const int x = random(1, most);
  return random.one_in(2) ? (x + 3) / 4 * 4 : x;
}

/// A random number of splits of the chunks.
std::int64_t some_splits(Random& random, std::int64_t chunks) {
  const std::int64_t each = random(1, static_cast<int>(chunks));
  return (chunks + each - 1) / each;
}

template <class T>
void check_in_order(std::uint64_t seed) {
  Random random{seed * 7919 + 1};
  const bool few = random.one_in(2);
  int m = size(random, random.one_in(3) ? 140 : 30), n = size(random, random.one_in(3) ? 140 : 30);
  if (few) (random.one_in(2) ? m : n) = random(1, 4);
  int k = size(random, random.one_in(3) ? 400 : 60);
  const bool vectors = random.one_in(3);
  if (vectors) m = (m + 3) / 4 * 4, n = (n + 3) / 4 * 4, k = (k + 3) / 4 * 4;
  Product<T> product(random, {.aligned_one_in = vectors ? 1 : 2}, m, n, k, seed);
  product.problem.precision = Precision::ieee;
  const double error = k * (sizeof(T) == 8 ? 0x1p-53 : 0x1p-24);
  std::optional<Buffer<T>> first;
  const auto same = [&](const std::string& name, const auto& launch) {
    auto out = product.check(name + " seed " + std::to_string(seed), error, launch);
    if (first) require(equal(*first, out), "equal bits: " + name + " " + product.name() + " seed " + std::to_string(seed));
    if (!first) first.emplace(std::move(out));
  };
  for (int turn = 0; turn < 2; ++turn) {
    const auto& tile = kSimtTiles[static_cast<std::size_t>(random(0, 2))];
    Problem elsewhere = product.problem;  // a plan may serve other addresses: batch dims that the host loops over
    elsewhere.a.data = elsewhere.b.data = nullptr;
    SimtPlan plan = offer_simt({elsewhere, kGpu, tile.name});
    plan.splits = some_splits(random, plan.chunks);
    Buffer<T> workspace(static_cast<std::size_t>(product.problem.batches * m * n * plan.chunks * 8 / sizeof(T) + 1),
                        static_cast<T>(NAN));
    emulation::launch_options() = {.seed = seed + static_cast<std::uint64_t>(turn)};
    same(std::string(tile.name), [&](const Problem& p) { launch_simt<T>(p, plan, workspace.data(), nullptr); });
  }
  if (std::min(m, n) > kGemvLines) return;
  for (const bool exact : {false, true}) {
    if (exact) product.problem.precision = Precision::highest, first.reset();
    auto plan = std::get<GemvPlan>(offer_cuda_cores({product.problem, kGpu, "gemv"}));
    plan.splits = some_splits(random, plan.chunks);
    Buffer<T> workspace(static_cast<std::size_t>(product.problem.batches * m * n * plan.chunks * 16 / sizeof(T) + 1),
                        static_cast<T>(NAN));
    same("gemv", [&](const Problem& p) { launch_gemv<T>(p, plan, workspace.data(), nullptr); });
  }
}

/// A row of the first batch, computed alone by `launch`, has its bits of `out`.
template <class Launch>
void check_row_alone(const Product<float>& product, const Buffer<float>& out, std::int64_t row, const std::string& text,
                     const Launch& launch) {
  Problem p = product.problem;
  const auto shifted = [&](Operand& x) {
    if (x.data) x.data = static_cast<const float*>(x.data) + row * x.row_stride;
  };
  shifted(p.a), shifted(p.c), shifted(p.residual);
  p.m = 1, p.batches = 1, p.batch_dims = 0;
  for (auto& size : p.batch) size = 1;
  Buffer<float> alone(static_cast<std::size_t>(p.n), NAN), among(static_cast<std::size_t>(p.n));
  for (std::size_t i = 0; i < alone.size(); ++i) among[i] = out[static_cast<std::size_t>(row * p.n) + i];
  p.out = alone.data();
  launch(p);
  require(equal(alone, among), "equal bits of row " + std::to_string(row) + ": " + text + " " + product.name());
}

void check_fp32(std::uint64_t seed) {
  Random random{seed * 7919 + 2};
  const bool few = random.one_in(2);
  int m = size(random, random.one_in(3) ? 140 : 40), n = size(random, random.one_in(3) ? 140 : 40);
  if (few) {
    (random.one_in(2) ? m : n) = random(1, 4);
    if (random.one_in(2)) (m > n ? m : n) = 32 + size(random, 260);
  }
  const int k = size(random, random.one_in(2) ? 60 : random.one_in(2) ? 500 : 2100);
  const Product<float> product(random, {}, m, n, k, seed);
  const Problem& p = product.problem;
  const std::string text = " seed " + std::to_string(seed);
  emulation::launch_options() = {.seed = seed};
  const auto& tile = kSlicedTiles[seed % 2];
  auto sliced = *offer_sliced({p, kGpu, std::string(tile.name) + (random.one_in(2) ? "_apart" : "")});
  const std::int64_t chunks = (k + kSlicedDepth - 1) / kSlicedDepth;
  if (!sliced.apart)
    sliced.splits = random(1, static_cast<int>(std::clamp<std::int64_t>(chunks / kSlicedWarps, 1, kSlicedMaxSplits)));
  product.check(std::string(tile.name) + (sliced.apart ? "_apart" : "/" + std::to_string(sliced.splits)) + text, 0x1p-40,
                [&](const Problem& x) { launch_sliced(x, sliced, nullptr); });
  const std::int64_t row = random(0, m - 1);
  if (legal(p, kGpu, {}).dot) {
    const auto launch = [&](const Problem& x) { launch_dot(x, nullptr); };
    const auto out = product.check("dot" + text, k * 0x1p-26 + 0x1p-23, launch);
    // A batch of unaligned matrices has another order than one that is aligned.
    if (dot_streams_b(p) && (k % 4 || has_vectors(p, lines_of_b(p), 4))) check_row_alone(product, out, row, "dot" + text, launch);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check_fp32(seed);
    check_in_order<float>(seed);
    check_in_order<half>(seed);
    check_in_order<double>(seed);
  });
}
