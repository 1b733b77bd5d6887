// csrc/attention/kernels/tile.cuh against attention in double: ragged sizes, a causal mask, strided rows, several dtypes.
#include "attention/kernels/launch.cuh"
#include "check.h"

using namespace xgemm;
using namespace xgemm::attention;

namespace {

template <class T, int kTile>
void check(int heads, int sq, int sk, int d, int dv, bool causal, std::uint64_t seed) {
  const auto n = [](int x, int y, int z) {
    return static_cast<std::size_t>(x) * static_cast<std::size_t>(y) * static_cast<std::size_t>(z);
  };
  const Buffer<T> query = random_numbers<T>(n(heads, sq, d), seed), key = random_numbers<T>(n(heads, sk, d), seed + 1),
                  value = random_numbers<T>(n(heads, sk, dv), seed + 2);
  Buffer<T> output(n(heads, sq, dv), static_cast<T>(NAN));
  Buffer<float> lse(n(heads, sq, 1), NAN);
  Arguments a;
  const auto operand = [&](const Buffer<T>& x, int rows, int columns) {
    Operand o;
    o.data = x.data(), o.row = columns, o.column = 1, o.batch[0] = std::int64_t{rows} * columns;
    o.vector = columns * static_cast<int>(sizeof(T)) % 16 == 0;
    return o;
  };
  a.query = operand(query, sq, d), a.key = operand(key, sk, d), a.value = operand(value, sk, dv);
  a.dtype = a.mask_dtype = std::is_same_v<T, float> ? DType::f32 : std::is_same_v<T, half> ? DType::f16 : DType::bf16;
  a.batch_dims = 1, a.batch_sizes[0] = static_cast<unsigned>(heads), a.batches = static_cast<unsigned>(heads);
  a.sq = sq, a.sk = sk, a.d = d, a.dv = dv, a.scale = 1 / std::sqrt(d), a.causal = causal;
  a.output = output.data(), a.lse = lse.data();
  Plan plan = make_plan({.fp64 = false, .batches = heads, .rows = sq, .sk = sk, .d = d, .dv = dv, .sm_count = 4});
  plan.tile = kTile;
  plan.row_tiles = (sq + kTiles[kTile].rows() - 1) / kTiles[kTile].rows();
  plan.blocks = plan.row_tiles * heads;
  a.row_tiles = static_cast<unsigned>(plan.row_tiles);
  emulation::launch_options() = {.seed = seed};
  launch_tile<kTile>(plan, a, nullptr);

  std::vector<double> expected(output.size()), allowed(output.size()), expected_lse(lse.size()), allowed_lse(lse.size(), 1e-5);
  const auto at = [](const Buffer<T>& x, int i) {
    return static_cast<double>(static_cast<float>(x[static_cast<std::size_t>(i)]));
  };
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < sq; ++i) {
      std::vector<double> weights(static_cast<std::size_t>(sk));
      double sum = 0;
      const int keys = causal ? std::min(i + 1, sk) : sk;
      for (int j = 0; j < keys; ++j) {
        double score = 0;
        for (int c = 0; c < d; ++c) score += at(query, (h * sq + i) * d + c) * at(key, (h * sk + j) * d + c);
        sum += weights[static_cast<std::size_t>(j)] = std::exp(score * a.scale);
      }
      expected_lse[static_cast<std::size_t>(h * sq + i)] = std::log(sum);
      for (int c = 0; c < dv; ++c) {
        double y = 0;
        for (int j = 0; j < keys; ++j) y += weights[static_cast<std::size_t>(j)] * at(value, (h * sk + j) * dv + c);
        const auto place = static_cast<std::size_t>((h * sq + i) * dv + c);
        expected[place] = y / sum;
        allowed[place] = sizeof(T) == 4 ? 1e-5 : (std::abs(y / sum) + 0.001) * (std::is_same_v<T, half> ? 0x1p-10 : 0x1p-7);
      }
    }
  const std::string name = "tile " + std::to_string(kTile) + " seed " + std::to_string(seed);
  require_close(output, expected, allowed, name);
  require_close(lse, expected_lse, allowed_lse, name + " lse");
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 4;
  return run_checks([&] {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      check<float, 1>(2, 75, 300, 60, 64, false, seed);
      check<half, 1>(1, 130, 131, 64, 40, true, seed);
      check<bf16, 4>(1, 5, 140, 128, 128, false, seed);
      check<float, 4>(1, 9, 33, 37, 31, true, seed);
    }
  });
}
