// csrc/matmul/mma (half precision, fp32 in tf32), host code and kernels, against products in double: random sizes, strides,
// bases, batches and epilogues, operands in place; of one case in three K is split, whose sums are added here.
#include "matmul/mma/launch.cuh"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

constexpr DeviceProperties kGpu{.major = 9, .sm_count = 4, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};

/// False: an operand would be copied first.
template <class T, MmaTile kTile>
bool check(std::uint64_t seed) {
  Random random{seed * 7919 + static_cast<std::uint64_t>(kTile)};
  constexpr TileInfo kInfo = info(kTile);
  const int m = random(1, 2 * kInfo.m), n = random(1, kInfo.n + 70), k = random(1, random.one_in(3) ? 600 : 140);
  const RandomProduct<T> product(random, {.any_strides = false, .aligned_one_in = takes_any_rows(kTile) ? 2 : 1}, m, n, k, seed);
  Problem asked = product.problem;
  asked.precision = Precision::high;
  auto plan = offer_mma({asked, kGpu, kInfo.name});
  if (!plan || plan->a.copied || plan->b.copied) return false;
  const auto blocks = static_cast<int>(ceil_div(k, kInfo.k));
  plan->split_blocks = random.one_in(3) ? random(1, blocks) : blocks, plan->splits = ceil_div(blocks, plan->split_blocks);
  const std::int64_t elements = asked.batches * m * n;
  Buffer<float> partials(static_cast<std::size_t>(plan->splits * elements), NAN);
  emulation::launch_options() = {.seed = seed};
  product.check(std::string(kInfo.name) + " seed " + std::to_string(seed), is_tf32(kTile) ? 0x1p-10 : k * 0x1p-24,
                [&](const Problem& p) {
                  launch_mma_tile<T, kTile>(*plan, mma_arguments(p, *plan, nullptr, partials.data()), nullptr);
                  for (std::int64_t i = 0; plan->splits > 1 && i < elements; ++i) {
                    float sum = 0;
                    for (std::int64_t s = 0; s < plan->splits; ++s) sum += partials[static_cast<std::size_t>(s * elements + i)];
                    const auto epilogue = make_epilogue<T, float>(p, static_cast<int>(i / (m * n)));
                    static_cast<T*>(p.out)[i] = epilogue(sum, i / n % m, i % n);
                  }
                });
  return true;
}

/// The first product of a few whose operands lie in place.
template <class T, MmaTile kTile>
void check_one(std::uint64_t seed) {
  for (std::uint64_t other = 0; other < 256; ++other)
    if (check<T, kTile>(256 * seed + other)) return;
  require(false, "a product whose operands lie in place");
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check_one<half, MmaTile::t128x128>(seed);
    check_one<bf16, MmaTile::t64x64>(seed);
    check_one<half, MmaTile::t16x64>(seed);
    check_one<float, MmaTile::tf32_64x64>(seed);
    check_one<float, MmaTile::tf32_64x128>(seed);
  });
}
