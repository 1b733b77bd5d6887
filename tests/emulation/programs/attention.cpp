// csrc/attention/simt against attention in double: ragged sizes, causal masks and windows, splits of the keys, softcap, sinks,
// strided rows, several dtypes.
#include "attention/simt/launch.cuh"
#include "attention/simt/merge.cuh"
#include "check.h"

using namespace xgemm;
using namespace xgemm::attention;

namespace {

struct Keys {
  int first, last;  ///< row i sees keys i + first to i + last - 1
};

/// `sm_count`: with few SMs a block goes through all splits of the keys; with many each split has its own block.
template <class T, int kTile>
void check(int heads, int sq, int sk, int d, int dv, Keys seen, double softcap, bool sunk, int sm_count, std::uint64_t seed) {
  const auto n = [](int x, int y, int z) {
    return static_cast<std::size_t>(x) * static_cast<std::size_t>(y) * static_cast<std::size_t>(z);
  };
  const Buffer<T> query = random_numbers<T>(n(heads, sq, d), seed), key = random_numbers<T>(n(heads, sk, d), seed + 1),
                  value = random_numbers<T>(n(heads, sk, dv), seed + 2);
  const Buffer<float> sinks = random_numbers<float>(n(heads, 1, 1), seed + 3);
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
  a.sq = sq, a.sk = sk, a.d = d, a.dv = dv, a.first = seen.first, a.last = seen.last;
  a.scale = softcap == 0 ? 1 / std::sqrt(d) : softcap, a.cap_scale = softcap == 0 ? 0 : 1 / std::sqrt(d) / softcap;
  if (sunk) a.sinks.data = sinks.data(), a.sinks.batch[0] = 1, a.sinks_dtype = DType::f32;
  a.output = output.data(), a.lse = lse.data();
  SimtPlan plan = plan_simt({.fp64 = false,
                             .batches = heads,
                             .rows = sq,
                             .key_begin = std::clamp(seen.first, 0, sk),
                             .key_end = std::clamp(sq - 1 + seen.last, 0, sk),
                             .d = d,
                             .dv = dv,
                             .sm_count = sm_count});
  plan.tile = kTile;
  plan.row_tiles = (sq + kSimtTiles[kTile].rows() - 1) / kSimtTiles[kTile].rows();
  plan.blocks = plan.row_tiles * heads * (plan.parallel ? plan.splits : 1);
  a.row_tiles = static_cast<unsigned>(plan.row_tiles);
  a.first_split = plan.first_split, a.splits = plan.splits, a.parallel = plan.parallel;
  const int head_size = kSimtTiles[kTile].head_size;
  Buffer<float> outputs(n(static_cast<int>(plan.partials), heads * sq, head_size), NAN),
      maxima(n(static_cast<int>(plan.partials), heads, sq), NAN), sums(maxima.size(), NAN);
  a.partial_output = outputs.data(), a.partial_max = maxima.data(), a.partial_sum = sums.data();
  emulation::launch_options() = {.seed = seed};
  launch_tile<kTile>(plan, a, nullptr);
  if (plan.parallel) {
    constexpr auto merge = attention_merge<float>;
    merge<<<static_cast<unsigned>((heads * sq + 3) / 4), kThreads, 0, nullptr>>>(a, head_size);
  }

  std::vector<double> expected(output.size()), allowed(output.size()), expected_lse(lse.size()), allowed_lse(lse.size(), 1e-5);
  const auto at = [](const Buffer<T>& x, int i) {
    return static_cast<double>(static_cast<float>(x[static_cast<std::size_t>(i)]));
  };
  for (int h = 0; h < heads; ++h)
    for (int i = 0; i < sq; ++i) {
      std::vector<double> weights(static_cast<std::size_t>(sk));
      double sum = sunk ? std::exp(static_cast<double>(sinks[static_cast<std::size_t>(h)])) : 0;
      const int begin = std::max(i + seen.first, 0), end = std::min(i + seen.last, sk);
      for (int j = begin; j < end; ++j) {
        double score = 0;
        for (int c = 0; c < d; ++c) score += at(query, (h * sq + i) * d + c) * at(key, (h * sk + j) * d + c);
        score /= std::sqrt(d);
        sum += weights[static_cast<std::size_t>(j)] = std::exp(softcap == 0 ? score : softcap * std::tanh(score / softcap));
      }
      expected_lse[static_cast<std::size_t>(h * sq + i)] = std::log(sum);
      for (int c = 0; c < dv; ++c) {
        double y = 0;
        for (int j = begin; j < end; ++j) y += weights[static_cast<std::size_t>(j)] * at(value, (h * sk + j) * dv + c);
        const auto place = static_cast<std::size_t>((h * sq + i) * dv + c);
        expected[place] = sum == 0 ? 0 : y / sum;
        allowed[place] = sizeof(T) == 4 ? 1e-5 : (std::abs(y / sum) + 0.001) * (std::is_same_v<T, half> ? 0x1p-10 : 0x1p-7);
      }
    }
  const std::string name = "tile " + std::to_string(kTile) + " seed " + std::to_string(seed);
  require_close(output, expected, allowed, name);
  require_close(lse, expected_lse, allowed_lse, name + " lse");
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    check<float, 1>(2, 75, 300, 60, 64, {-75, 300}, 0, false, 4, seed);
    check<half, 1>(1, 130, 131, 64, 40, {-130, 1}, 0, seed % 2, 4, seed);
    check<bf16, 4>(1, 5, 140, 128, 128, {-5, 140}, 2, seed % 2, 4, seed);
    check<float, 4>(1, 9, 33, 37, 31, {-9, 1}, 0, false, 4, seed);
    check<float, 1>(1, 130, 300, 64, 64, {-40, 20}, 3, true, 4, seed);
    check<half, 4>(1, 9, 400, 64, 64, {150, 201}, 0, true, 4, seed);
    for (const int sm_count : {0, 4}) check<float, 4>(2, 4, 3500, 8, 8, {1030, 2900}, 5, true, sm_count, seed);
  });
}
