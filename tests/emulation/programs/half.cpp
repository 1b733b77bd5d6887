// Half-precision products against double: csrc/matmul/wgmma/kernel.cuh (K- and MN-major operands, multicast CTA pairs, split-K
// over a cluster), matmul/mma/kernel.cuh (also fp32 in tf32) and packed operands (pack.cuh), through csrc's own plans and host
// code.
#include "matmul/fp16_split/pack.cuh"
#include "matmul/mma/launch.cuh"
#include "matmul/plan/plan.h"
#include "matmul/wgmma/launch.cuh"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

struct Case {
  int m, n, k;
  bool k_major_a, k_major_b, epilogue;
};

/// launch(problem, seed) runs the product.
template <class T, class Launch>
void check(const char* name, const Case& c, std::uint64_t seed, int alignment, const Launch& launch) {
  const auto ld = [&](int inner) { return (inner + alignment - 1) / alignment * alignment; };
  const int lda = ld(c.k_major_a ? c.k : c.m), ldb = ld(c.k_major_b ? c.k : c.n);
  const auto size = [](int x, int y) { return static_cast<std::size_t>(x) * static_cast<std::size_t>(y); };
  const Buffer<T> a = random_numbers<T>(size(lda, c.k_major_a ? c.m : c.k), seed),
                  b = random_numbers<T>(size(ldb, c.k_major_b ? c.n : c.k), seed + 1),
                  bias = random_numbers<T>(static_cast<std::size_t>(c.n), seed + 2),
                  residual = random_numbers<T>(size(c.m, c.n), seed + 3);
  Buffer<T> out(size(c.m, c.n), static_cast<T>(NAN));
  Problem p;
  p.dtype = std::is_same_v<T, half> ? DType::f16 : DType::bf16;
  p.m = c.m, p.n = c.n, p.k = c.k;
  p.a = {a.data(), c.k_major_a ? lda : 1, c.k_major_a ? 1 : lda, {}};
  p.b = {b.data(), c.k_major_b ? 1 : ldb, c.k_major_b ? ldb : 1, {}};
  p.bias = {bias.data(), 0, 1, {}};
  if (c.epilogue) p.residual = {residual.data(), c.n, 1, {}}, p.alpha = 0.5;
  p.out = out.data();
  launch(p, seed);
  std::vector<double> expected(out.size()), allowed(out.size());
  for (int i = 0; i < c.m; ++i)
    for (int j = 0; j < c.n; ++j) {
      double sum = 0;
      for (int k = 0; k < c.k; ++k)
        sum += static_cast<double>(static_cast<float>(a[static_cast<std::size_t>(c.k_major_a ? i * lda + k : k * lda + i)])) *
               static_cast<double>(static_cast<float>(b[static_cast<std::size_t>(c.k_major_b ? j * ldb + k : k * ldb + j)]));
      const auto at = static_cast<std::size_t>(i * c.n + j);
      expected[at] = p.alpha * sum + static_cast<double>(static_cast<float>(bias[static_cast<std::size_t>(j)]));
      if (c.epilogue) expected[at] += static_cast<double>(static_cast<float>(residual[at]));
      allowed[at] = (std::abs(expected[at]) + 0.01) * (std::is_same_v<T, half> ? 0x1p-10 : 0x1p-7);
    }
  require_close(out, expected, allowed, std::string(name) + " seed " + std::to_string(seed));
}

constexpr DeviceProperties kGpu{.major = 9, .sm_count = 4, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};

/// `change` alters the plan.
template <class T, WgmmaTile kTile, bool kKMajorA, bool kKMajorB, class Change>
void check_wgmma(int m, int n, int k, bool epilogue, std::uint64_t seed, const Change& change) {
  check<T>("wgmma", {m, n, k, kKMajorA, kKMajorB, epilogue}, seed, 8, [&](const Problem& p, std::uint64_t) {
    auto plan = offer_wgmma({p, kGpu, info(kTile).name});
    require(plan && plan->tile == kTile && !plan->a.copied && !plan->b.copied, "a plan");
    change(*plan);
    Buffer<unsigned char> workspace(static_cast<std::size_t>(plan->workspace_bytes) + 256),
        counters(static_cast<std::size_t>(plan->counter_bytes) + 4096);
    Buffer<float> partials(static_cast<std::size_t>(plan->partial_bytes / 4 + 1), NAN);
    emulation::launch_options() = {.seed = seed, .all_ctas = true};
    const WgmmaLaunch launch{p, *plan, workspace.data(), counters.data(), partials.data(), kGpu.sm_count, nullptr};
    require(launch_wgmma<T, T, WgmmaInstance<kTile, 1, false, kKMajorA, kKMajorB>>(launch), "a launch");
  });
}

/// Any sizes, strides and bases, batches and epilogues; of fp32 K is split in one of three cases.
template <class T, MmaTile kTile>
void check_mma(std::uint64_t seed) {
  Random random{seed * 7919 + static_cast<std::uint64_t>(kTile)};
  constexpr TileInfo kInfo = info(kTile);
  const int m = random(1, 2 * kInfo.m), n = random(1, 2 * kInfo.n), k = random(1, random.one_in(3) ? 600 : 140);
  const std::int64_t blocks = ceil_div(k, kMmaRowBytes / static_cast<int>(sizeof(T)));
  const RandomProduct<T> product(random, {.any_strides = false}, m, n, k, seed);
  Problem asked = product.problem;
  asked.precision = Precision::high;
  auto plan = offer_mma({asked, kGpu, kInfo.name});
  if (!plan) return;  // an operand of which neither stride is 1
  const std::int64_t tiles = ceil_div(m, kInfo.m) * ceil_div(n, kInfo.n) * asked.batches;
  plan->split_blocks = is_tf32(kTile) && random.one_in(3) ? random(1, static_cast<int>(blocks)) : blocks;
  plan->splits = ceil_div(blocks, plan->split_blocks);
  Buffer<std::uint64_t> meetings(static_cast<std::size_t>(tiles), 0);
  Buffer<float> partials(static_cast<std::size_t>(tiles * plan->splits * kInfo.m * kInfo.n), NAN);
  emulation::launch_options() = {.seed = seed, .all_ctas = plan->splits > 1};
  const double error = is_tf32(kTile) ? 0x1p-10 : k * 0x1p-24;
  product.check(std::string(kInfo.name) + " seed " + std::to_string(seed), error,
                [&](const Problem& p) { launch_mma_tile<T, kTile>(p, *plan, meetings.data(), partials.data(), nullptr); });
  for (std::size_t i = 0; i < meetings.size(); ++i) require(meetings[i] == 0, "meetings end at zero");
}

/// Packs both operands in one launch, as for wgmma: the same bits, contiguous along k or along their lines.
void check_copies(std::uint64_t seed) {
  Random random{seed * 7919 + 9};
  const int m = random(1, 40), n = random(1, 40), k = random(1, random.one_in(2) ? 1200 : 80);
  const RandomProduct<half> product(random, {.few_batches = k < 100}, m, n, k, seed);
  const Problem& p = product.problem;
  const OperandLines lines[2] = {lines_of_a(p), lines_of_b(p)};
  std::optional<Buffer<std::uint16_t>> copies[2];
  PackOperand<std::uint16_t> operands[2];
  TensorOperand placed[2];
  for (int i = 0; i < 2; ++i) {
    TensorOperand& t = placed[i];
    t = tensor_operand(p, lines[i], 2, random.one_in(2));
    place_copy(t, round_up(t.inner, t.inner > 64 ? 64 : 8));
    copies[i].emplace(static_cast<std::size_t>(t.plane * t.batches), std::uint16_t{0xffff});
    operands[i] = pack_operand<std::uint16_t>(p, lines[i], t, reinterpret_cast<unsigned char*>(copies[i]->data()));
  }
  emulation::launch_options() = {.seed = seed};
  launch_pack(p, operands[0], operands[1], nullptr);
  for (int i = 0; i < 2; ++i)
    for (std::int64_t batch = 0; batch < placed[i].batches; ++batch)
      for (std::int64_t line = 0; line < lines[i].count; ++line)
        for (std::int64_t at = 0; at < k; ++at) {
          const TensorOperand& t = placed[i];
          const std::int64_t second = batch % p.batch[1], first = batch / p.batch[1];
          const auto* const from = static_cast<const std::uint16_t*>(lines[i].operand.data) + line * lines[i].stride +
                                   at * lines[i].k_stride +
                                   (p.batch_dims > 1 ? first : batch) * lines[i].operand.batch_stride[0] +
                                   (p.batch_dims > 1 ? second : 0) * lines[i].operand.batch_stride[1];
          const std::int64_t to = batch * t.plane + (t.k_major ? line * t.ld + at : at * t.ld + line);
          require((*copies[i])[static_cast<std::size_t>(to)] == *from, "copy, seed " + std::to_string(seed));
        }
}

}  // namespace

int main(int argc, char** argv) {
  const auto as_planned = [](WgmmaPlan&) {};
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check_wgmma<half, WgmmaTile::t128x128, true, true>(150, 140, 200, false, seed, as_planned);
    check_wgmma<half, WgmmaTile::t128x128, true, true>(270, 136, 260, true, seed, [](WgmmaPlan& plan) { plan.multicast = true; });
    check_wgmma<bf16, WgmmaTile::t128x64, false, false>(70, 136, 300, false, seed, as_planned);
    check_copies(seed);
    check_mma<half, MmaTile::t16x64>(seed);
    check_mma<bf16, MmaTile::t32x32>(seed);
    check_mma<bf16, MmaTile::t64x64>(seed);
    check_mma<float, MmaTile::tf32_64x64>(seed);
    check_mma<float, MmaTile::tf32_128x64>(seed);
    check_mma<float, MmaTile::tf32_64x128>(seed);
  });
}
