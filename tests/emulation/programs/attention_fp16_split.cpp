// csrc/attention/fp16_split, and the kernel on CUDA cores for the heads that it leaves, against attention in double. Each line
// of the standard input is a case:
//   the fields of attention_wgmma.cpp, data parts portable
// mask 2: additive. data: 0 normal, 1 peaked (queries and keys 3 times larger), 2 large scores (keys near 2, queries near 1), 3
// values in [0, 1), 4 numbers of 2^-13 .. 2^13, 5 one key in eight, values and all, 2^14 times larger, 6 equal weights, 7 tiny
// and large rows. special: 1 and 2 as there; in the last key head, 3 a value of Inf, 4 a column of values that is 2^40 at one
// key; 5 an additive mask of the lowest number in every third row. parts: per number, 2 or 1. portable: by mma.sync. Prints the
// tile, the number of heads left to CUDA cores and the Frobenius error relative to that of plain fp32 arithmetic; with one part,
// on operands and weights rounded to TF32. The last outer batch alone, with another seed and number of SMs, must give the same
// bits.
#include "attention/fp16_split/launch.h"
#include "programs/attention_case.h"

using namespace xgemm;
using namespace xgemm::attention;

namespace {

struct SplitCase : Case {
  int data, parts, portable;
  friend std::istream& operator>>(std::istream& in, SplitCase& c) {
    return in >> static_cast<Case&>(c) >> c.data >> c.parts >> c.portable;
  }
};

/// Draws an operand: `kind` 0 query, 1 key, 2 value.
Buffer<float> draw(const SplitCase& c, int kind, std::int64_t count, int columns) {
  std::mt19937_64 random(c.seed * 3 + static_cast<unsigned>(kind));
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  Buffer<float> x(count);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = i / columns;
    double y = normal(random);
    if (c.data == 1 && kind != 2) y *= 3;
    if (c.data == 2 && kind != 2) y = (kind == 0 ? 1 : 2) + 0.3 * y;
    if (c.data == 3 && kind == 2) y = uniform(random);
    if (c.data == 4) y = std::copysign(std::exp2(26 * uniform(random) - 13), y) / (kind == 2 ? 1 : 64);
    if (c.data == 5 && row % 8 == 3 && kind != 0) y *= kind == 1 ? 4 : 16384;
    if (c.data == 6 && kind == 0) y = 0;
    if (c.data == 7) y *= std::exp2(kind == 0 ? -20 : kind == 1 ? 20 : (row % 3 - 1) * 3 + 30);
    x[i] = static_cast<float>(y);
  }
  return x;
}

void check(const SplitCase& c) {
  const int all_heads = c.inner * c.group;
  const Buffer<float> query = draw(c, 0, std::int64_t{c.outer} * all_heads * c.sq * c.d, c.d),
                      key = draw(c, 1, std::int64_t{c.outer} * c.inner * c.sk * c.d, c.d),
                      value = draw(c, 2, std::int64_t{c.outer} * c.inner * c.sk * c.dv, c.dv);
  const std::int64_t rows = std::int64_t{c.outer} * all_heads * c.sq;
  Buffer<float> output(rows * c.dv, NAN), lse(rows, NAN);

  Arguments a = sizes_of(c, DType::f32);
  a.scale = 1.1 / std::sqrt(c.d);
  set_operands(a, c, query, key, value);
  a.output = output.data(), a.lse = lse.data();

  poison_key(c, a, query, key);
  if (c.special == 3) special_row(c, value, a.value)[1] = INFINITY;
  if (c.special == 4) special_row(c, value, a.value)[1] = 0x1p40f;

  std::optional<double> lowest;
  if (c.special == 5) lowest = std::numeric_limits<float>::lowest();
  const RandomMask<float> mask(c, lowest);
  mask.set(a, c);

  int failed = 0;
  const auto run = [&](Arguments arguments, int sm_count, std::uint64_t seed) {
    const auto plan = c.portable ? plan_split_mma(arguments, sm_count) : plan_fp16_split(arguments, sm_count, c.parts);
    require(plan.has_value(), "plan");
    Buffer<unsigned char> memory(plan->bytes, 0xff);
    emulation::launch_options() = {.seed = seed, .concurrent_ctas = 3};
    arguments.failed = launch_fp16_split(*plan, arguments, memory.data(), nullptr);
    require(arguments.failed != nullptr, "launch");
    failed = 0;
    for (unsigned i = 0; i < arguments.batches; ++i) failed += arguments.failed[i] != 0;
    const SimtPlan rest = plan_simt({.batches = arguments.batches,
                                     .rows = std::int64_t{c.group} * c.sq,
                                     .key_begin = std::clamp<std::int64_t>(arguments.first, 0, c.sk),
                                     .key_end = std::clamp<std::int64_t>(c.sq - 1 + arguments.last, 0, c.sk),
                                     .d = c.d,
                                     .dv = c.dv,
                                     .sm_count = sm_count});
    Buffer<unsigned char> partials(rest.partial_bytes(arguments.total_rows()));
    launch_simt(rest, {arguments}, partials.data(), nullptr);
    return *plan;
  };

  const SplitPlan plan = run(a, c.sm_count, c.seed);
  std::cout << "tile " << plan.tile() << " packed " << plan.rows.packed << " splits " << plan.rows.splits << " failed " << failed
            << std::flush;
  check_last_batch(c, a, output, lse, plan.rows.splits, [&](const auto&... more) { return run(more...).rows.splits; });

  Expected expected(output.size()), expected_lse(lse.size());
  const std::vector<double> queries = doubles(query), keys = doubles(key), values = doubles(value);
  AttentionRow exact(c.dv);
  std::vector<float> plain_weights(c.sk), plain_sums(c.dv);
  double errors = 0, plain_errors = 0;
  const auto round_all = [&](const Buffer<float>& x) {
    Buffer<float> rounded(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) rounded[i] = c.parts == 2 ? x[i] : tf32(x[i]);
    return rounded;
  };
  const Buffer<float> plain_queries = round_all(query), plain_keys = round_all(key), plain_values = round_all(value);
  const double unit = c.parts == 2 ? 0x1p-20 : 0x1p-10;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t o = row / c.sq / all_heads, head = row / c.sq % all_heads, i = row % c.sq, kv = head / c.group;
    const bool last_head = o == c.outer - 1 && kv == c.inner - 1;
    const std::int64_t end = std::clamp<std::int64_t>(i + c.last, 0, c.sk),
                       q = o * a.query.batch[0] + head * a.query.group + i * a.query.row,
                       k = o * a.key.batch[0] + kv * a.key.batch[1], v = o * a.value.batch[0] + kv * a.value.batch[1];
    double magnitude = 0;  // of products in a score
    float plain_largest = -INFINITY, plain_sum = 0;
    exact.attend(queries.data() + q, c.d, {keys.data() + k, a.key.row}, {values.data() + v, a.value.row}, 0, end, -INFINITY,
                 [&](std::int64_t j, const Dot& product) {
                   const double bias = c.mask ? mask.at(o, head, i, j) : 0;
                   float plain = 0;
                   for (int x = 0; x < c.d; ++x) plain = std::fma(plain_queries[q + x], plain_keys[k + j * a.key.row + x], plain);
                   plain_weights[j] = plain * static_cast<float>(a.scale) + static_cast<float>(bias);
                   plain_largest = std::max(plain_largest, plain_weights[j]);
                   magnitude = std::max(magnitude, product.magnitude * a.scale);
                   return product.sum * a.scale + bias;
                 });
    std::fill(plain_sums.begin(), plain_sums.end(), 0.f);
    for (std::int64_t j = 0; j < end; ++j) {
      const float weight = plain_largest == -INFINITY ? 0 : std::exp(plain_weights[j] - plain_largest),
                  rounded = c.parts == 2 ? weight : static_cast<float>(tf32(weight));
      plain_sum += weight;
      for (int x = 0; x < c.dv; ++x) plain_sums[x] = std::fma(rounded, plain_values[v + j * a.value.row + x], plain_sums[x]);
    }
    const bool sees_special = last_head && c.sk / 2 < end, poisoned = sees_special && (c.special == 1 || c.special == 2);
    for (int x = 0; x < c.dv; ++x) {
      const std::int64_t at = row * c.dv + x;
      const bool infinite = c.special == 3 && last_head && x == 1;
      if (poisoned || (infinite && sees_special)) {
        require(!std::isfinite(output[at]), "NaN or Inf in what sees one");
        expected.skip(at);
      } else if (infinite) {
        expected.skip(at);  // NaN from a value past the causal edge, in rows of the same tile
      } else {
        const double y = exact.output[x];
        const float plain = plain_sum == 0 ? 0 : plain_sums[x] / plain_sum;
        // Errors of scores cause errors of weights; values are summed in fp32.
        expected.set(at, y, exact.magnitudes[x] * unit * (1 + magnitude));
        errors += std::pow(output[at] - y, 2), plain_errors += std::pow(plain - y, 2);
      }
    }
    if (poisoned) {
      require(c.special == 2 ? lse[row] == INFINITY : std::isnan(lse[row]), "NaN or +inf log-sum-exp");
      expected_lse.skip(row);
    } else {
      expected_lse.set(row, exact.lse, unit / 2 * std::max({1., std::abs(exact.lse), magnitude}));
    }
  }
  std::cout << " error " << std::sqrt(errors / plain_errors) << ": " << std::flush;
  expected.compare(output, "output");
  expected_lse.compare(lse, "log-sum-exp");
}

}  // namespace

int main() { return check_cases<SplitCase>(check); }
