// Whole products on Hopper's tensor cores against double (launch_wgmma_product: copies or splits of the operands,
// wgmma/kernel.cuh or few_rows.cuh, the fp32 elements that fp16 parts cannot represent): random sizes, strides, batches and
// epilogues; each tile; K split in registers, over a cluster and through memory; multicast;
// narrower tiles; C^T; gated products; prepared weights. Plans that promise the same bits must give them.
#include "device/integer.h"
#include "matmul/launch.h"
#include "matmul/plan/plan.h"
#include "matmul/wgmma/launch.h"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

/// Launches a product with the plan's memory; the counters must be zero again after it.
void launch(const Problem& p, const WgmmaPlan& plan, int sm_count, std::uint64_t seed) {
  const Buffer<unsigned char> workspace(plan.workspace_bytes + 16, 0xff), counters(plan.counter_bytes + 16);
  const Buffer<float> partials(plan.partial_bytes / 4 + 4, NAN);
  emulation::launch_options() = {
      .seed = seed,
      .concurrent_ctas = plan.memory_splits > 1 ? 16u : 0u,
      .proxy_fences = !plan.b_as_it_lies};  // few_rows.cuh uses a slot's values before it releases the slot
  require(launch_wgmma_product(p, plan, workspace.data(), counters.data(), partials.data(), sm_count, nullptr), "a launch");
  require_zeros(counters);
}

std::string name_of(const WgmmaPlan& plan, std::uint64_t seed) {
  return text(plan.b_as_it_lies ? "few rows" : info(plan.tile).name, ", parts ", plan.parts, ", columns ", plan.columns,
              ", splits ", plan.splits, ", cluster ", plan.cluster, ", memory ", plan.memory_splits,
              plan.multicast ? ", multicast" : "", plan.swapped ? ", swapped" : "", ", seed ", seed);
}

/// Sets `splits` equal splits of K, or fewer so that none is empty.
std::int64_t set_splits(WgmmaPlan& plan, std::int64_t k, std::int64_t splits) {
  const auto blocks = [&] { return round_up(ceil_div(ceil_div(k, kWgmmaTileK), splits), kSplitMultiple); };
  while (splits > 1 && (splits - 1) * blocks() * kWgmmaTileK >= k) splits /= 2;
  plan.chunk = plan.split_length = blocks() * kWgmmaTileK;
  return plan.splits = splits;
}

/// Varies the plan's choices for speed, as far as the kernel allows.
void vary_half(Random& random, const Problem& p, WgmmaPlan& plan, int sm_count) {
  const TileInfo& tile = info(plan.tile);
  if (plan.swapped) {
    plan.columns = random(1, tile.n / 16) * 16;
    plan.multicast = random.one_in(2);
    return;
  }
  const auto may_multicast = [&] { return plan.columns % 16 == 0; };
  if (plan.splits == 1 && random.one_in(2)) {
    const std::int64_t splits = set_splits(plan, p.k, 1 << random(1, 3)), rows = ceil_div(p.m, tile.m),
                       columns = ceil_div(p.n, plan.columns);
    plan.multicast = random.one_in(2) && may_multicast();
    const std::int64_t pairs = ceil_div(rows, 2) * columns, tiles = (plan.multicast ? 2 * pairs : rows * columns) * p.batches;
    if (tiles * splits <= sm_count && random.one_in(2)) {
      plan.memory_splits = splits;
      plan.partial_bytes = tiles * splits * tile.m * tile.n * 4, plan.counter_bytes = tiles * 8;
    } else if (tile.n > 128) {
      set_splits(plan, p.k, 1);  // no registers for a second sum
    } else if (splits <= sm_count && random.one_in(2)) {
      plan.cluster = splits, plan.multicast = plan.multicast && splits == 1;
    }
  }
  if (plan.cluster > 1 || plan.memory_splits > 1 || random.one_in(2)) return;
  if (plan.b.k_major && random.one_in(3)) plan.columns = random(1, tile.n / 8) * 8;
  if (!plan.b.k_major && tile.n >= 128) plan.columns = random(1, tile.n / 64) * 64;
  plan.multicast = may_multicast();
}

void check_half(std::uint64_t seed) {
  Random random{seed * 7919 + 11};
  const int m = random(1, random.one_in(3) ? 70 : 300), n = random.one_in(3) ? random(1, 37) * 8 : random(1, 300),
            k = random(1, random.one_in(2) ? 900 : 200);
  const RandomProduct<half> product(
      random, {.any_strides = random.one_in(6), .few_batches = m * n < 30000, .aligned_one_in = random(1, 2)}, m, n, k, seed);
  const DeviceProperties gpu = hopper(random(2, 12));
  std::optional<Buffer<half>> first;
  std::int64_t first_length = 0;
  for (int turn = 0; turn < 2; ++turn) {
    const std::string tile{kWgmmaTiles[random(0, kWgmmaTiles.size() - 1)].name},
        forced = random.one_in(3) ? tile + "/swapped" : tile;
    auto plan = offer_wgmma({product.problem, gpu, forced});
    require(plan.has_value(), "a plan");
    vary_half(random, product.problem, *plan, gpu.sm_count);
    const std::string what = name_of(*plan, seed);
    auto out = product.check(what, k * 0x1p-24, [&](const Problem& p) { launch(p, *plan, gpu.sm_count, seed); });
    if (first && first_length == plan->split_length)
      require_same_bits(out, *first, what);
    else
      first.emplace(std::move(out)), first_length = plan->split_length;
  }
}

void check_few_rows(std::uint64_t seed) {
  Random random{seed * 7919 + 12};
  const int k = random(1, 1000);
  const RandomProduct<half> product(random, {.any_strides = false, .few_batches = k < 300, .aligned_one_in = 8}, random(1, 128),
                                    random(1, 200), k, seed);
  const DeviceProperties gpu = hopper(random(2, 12));
  auto plan = offer_wgmma({product.problem, gpu, "wgmma_few_rows"});
  if (!plan || !plan->b_as_it_lies) return;
  if (plan->splits == 1 && random.one_in(2)) plan->cluster = set_splits(*plan, k, 1 << random(1, 3));
  product.check(name_of(*plan, seed), k * 0x1p-24, [&](const Problem& p) { launch(p, *plan, gpu.sm_count, seed); });
}

/// Scales some lines of an operand, or elements within them, so that fp16 parts can represent some and not others.
void change_ranges(Random& random, const RandomProduct<float>& product, const Operand& x, std::int64_t lines,
                   std::int64_t line_stride, std::int64_t k_stride) {
  const int step = random(1, 7), range = random(1, 60), shift = random.one_in(2) ? 0 : random(-140, 40);
  const bool within = random.one_in(2);
  const Problem& p = product.problem;
  if (line_stride == 0 || k_stride == 0) return;
  for (std::int64_t i = 0; i < (x.batch_stride[0] ? p.batch[0] : 1); ++i)
    for (std::int64_t j = 0; j < (x.batch_stride[1] ? p.batch[1] : 1); ++j)
      for (std::int64_t line = 0; line < lines; line += step)
        for (std::int64_t k = 0; k < p.k; ++k) {
          float& value = static_cast<float*>(
              const_cast<void*>(x.data))[i * x.batch_stride[0] + j * x.batch_stride[1] + line * line_stride + k * k_stride];
          value = std::ldexp(value, shift - (within ? random(0, range) : 0));
        }
}

/// Integers: fp32 holds their products and sums.
void check_fp32(std::uint64_t seed, bool integers) {
  Random random{seed * 7919 + 13 + 2 * integers};
  const int m = random(1, random.one_in(2) ? 64 : 200), n = random(1, 200), k = random(1, random.one_in(3) ? 900 : 300);
  const RandomProduct<float> product(random, {.any_strides = random.one_in(4), .integers = integers}, m, n, k, seed);
  Problem p = product.problem;
  if (!integers && random.one_in(2)) change_ranges(random, product, p.a, m, p.a.row_stride, p.a.col_stride);
  if (!integers && random.one_in(2)) change_ranges(random, product, p.b, n, p.b.col_stride, p.b.row_stride);
  p.precision = random.one_in(3) ? Precision::high : Precision::highest;
  p.batch_invariant = random.one_in(2);
  const DeviceProperties gpu = hopper(random(2, 12));
  const int parts = split_parts(p.precision);
  std::optional<Buffer<unsigned char>> prepared;
  if (is_shared(p, p.b) && random.one_in(2)) {
    prepared.emplace(prepared_layout(n, k, parts).bytes + sizeof(FailedLines));
    emulation::launch_options() = {.seed = seed};
    launch_prepare(p, parts, prepared->data(), nullptr);
    p.prepared_b = prepared->data();
  }
  std::optional<Buffer<float>> first;
  for (const char* const tile : {"wgmma_128x128", "wgmma_64x64", "wgmma_128x256"}) {
    auto plan = offer_wgmma({p, gpu, tile});
    require(plan.has_value(), "a plan");
    if (info(plan->tile).name != tile || random.one_in(2)) continue;
    if (plan->splits == 1 && !p.batch_invariant && info(plan->tile).n <= 128 && random.one_in(2)) {
      const std::int64_t splits = set_splits(*plan, k, 1 << random(1, 3));
      if (splits <= gpu.sm_count && random.one_in(2))
        plan->cluster = splits;
      else if (parts == 2)
        plan->chunk = plan->split_length = kWgmmaTileK * random(1, static_cast<int>(plan->split_length / kWgmmaTileK));
    }
    const std::string what = name_of(*plan, seed) + (p.batch_invariant ? ", batch-invariant" : "");
    auto out = product.check(what,
                             integers     ? 0
                             : parts == 2 ? 0x1p-20
                                          : 0x1p-9,
                             [&](const Problem& q) {
                               Problem asked = p;
                               asked.out = q.out;
                               launch(asked, *plan, gpu.sm_count, seed);
                             });
    if (!p.batch_invariant) continue;
    if (first)
      require_same_bits(out, *first, what);
    else
      first.emplace(std::move(out));
  }
}

template <class T>
void check_gated(std::uint64_t seed) {
  Random random{seed * 7919 + 14};
  const int m = random(1, random.one_in(2) ? 64 : 200), n = random.one_in(2) ? random(1, 20) * 8 : random(1, 160),
            k = random(1, random.one_in(2) ? 400 : 200);
  RandomProduct<T> product(random, {.any_strides = random.one_in(4), .gated = true}, m, n, k, seed);
  product.problem.precision = random.one_in(2) ? Precision::high : Precision::highest;
  const DeviceProperties gpu = hopper(random(2, 12));
  constexpr const char* kTiles[] = {"wgmma_128x256", "wgmma_128x128", "wgmma_64x64"};
  const auto plan = offer_wgmma({product.problem, gpu, kTiles[random(0, 2)]});
  require(plan.has_value(), "a plan");
  product.check("gated " + name_of(*plan, seed),
                plan->parts == 0   ? k * 0x1p-24
                : plan->parts == 1 ? 0x1p-9
                                   : 0x1p-20,
                [&](const Problem& p) { launch(p, *plan, gpu.sm_count, seed); });
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check_half(seed);
    check_few_rows(seed);
    check_fp32(seed, false);
    check_fp32(seed, true);
    check_gated<half>(seed);
    check_gated<float>(seed);
  });
}
