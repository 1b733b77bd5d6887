// Every step of csrc/lab/attention against attention in double: lengths around the tiles' edges, causal or not, both head sizes.
// The program's arguments: how many seeds of the steps whose copies and products are asynchronous (04 to 07); the others get two.
#include "check.h"
#include "lab/attention/attention.h"

using namespace xgemm::lab::attention;
using xgemm::lab::find_step;
using T = __nv_bfloat16;

namespace {

void check(int step, int heads, int s, int d, bool causal, std::uint64_t seed) {
  const auto size = [](int x, int y, int z) { return x * y * z; };
  const Buffer<T> query = random_numbers<T>(size(heads, s, d), seed), key = random_numbers<T>(size(heads, s, d), seed + 1),
                  value = random_numbers<T>(size(heads, s, d), seed + 2);
  Buffer<T> out(size(heads, s, d), static_cast<T>(NAN));
  Buffer<float> scores(step == 1 ? size(heads, s, s) : 0, NAN);
  // Scores of 1.5 / sqrt(d): sharper weights than uniform numbers would give.
  const double scale = 4.5 / std::sqrt(d);
  Problem p{.query = query.data(),
            .key = key.data(),
            .value = value.data(),
            .out = out.data(),
            .scores = scores.data(),
            .heads = heads,
            .s = s,
            .d = d,
            .scale_log2 = static_cast<float>(scale * std::log2(std::exp(1.0))),
            .causal = causal,
            .map_query = {},
            .map_key = {},
            .map_value = {}};
  require(step < 5 || make_maps(p), "tensor maps");
  emulation::launch_options() = {.seed = seed, .concurrent_ctas = 2};
  find_step<Step>({step, d})->launch(p, nullptr);

  const std::vector<double> queries = doubles(query), keys = doubles(key), values = doubles(value);
  std::vector<double> expected(out.size()), allowed(out.size()), weights(size(s, 1, 1)), sums(size(d, 1, 1)), magnitudes(sums);
  for (int i = 0; i < heads * s; ++i) {
    const std::size_t row = size(i, d, 1), first = size(i / s, s, d);
    const int seen = causal ? i % s + 1 : s;
    double sum = 0;
    for (int j = 0; j < seen; ++j) {
      const double score = dot(queries.data() + row, keys.data() + first + size(j, d, 1), d).sum;
      sum += weights[size(j, 1, 1)] = std::exp(score * scale);
    }
    std::fill(sums.begin(), sums.end(), 0), std::fill(magnitudes.begin(), magnitudes.end(), 0);
    for (int j = 0; j < seen; ++j)
      add_multiple(weights[size(j, 1, 1)] / sum, values.data() + first + size(j, d, 1), d, sums.data(), magnitudes.data());
    for (std::size_t c = 0; c < sums.size(); ++c) {
      expected[row + c] = sums[c];
      // The result's rounding; from step 04 on each weight's.
      allowed[row + c] = std::abs(sums[c]) * 0x1p-8 + magnitudes[c] * (step < 4 ? 1e-5 : 0x1p-8);
    }
  }
  require_close(out, expected, allowed, text("step ", step, ", s ", s, ", d ", d, causal ? ", causal" : "", ", seed ", seed));
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    for (int step = 1; step <= 7; ++step) {
      if (step < 4 && seed >= 2) continue;
      const bool odd = seed % 2 != 0;  // what a seed leaves out, the next one does
      check(step, 1, odd ? 129 : 257, 64, !odd, seed);
      check(step, 2, odd ? 1 : 64, 128, odd, seed);
      check(step, 1, odd ? 300 : 140, odd ? 64 : 128, odd, seed);
    }
  });
}
