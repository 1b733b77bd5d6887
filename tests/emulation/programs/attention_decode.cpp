// csrc/attention/decode against attention in double. Each line of the standard input is a case with the fields of
// attention_wgmma.cpp, of dtype fp32, with these differences. bshd: 2 columns are not adjacent, 3 no row is aligned. mask: 0
// none, 1 boolean, 3 additive. special: 1 a NaN key, 2 a score of +inf, 3 an additive mask of the lowest number in every third
// row, 4 a NaN value. sinks: 1 a float for each query head, 2 for each query head and outer batch. sm_count, aligned and shared
// are not used. The last outer batch alone, the first query head of each group alone, and element-wise copies must give the
// same bits.
#include "attention/decode/launch.h"
#include "programs/attention_case.h"

using namespace xgemm;
using namespace xgemm::attention;

namespace {

struct Results {
  Buffer<float> output, lse;
  explicit Results(const Arguments& a) : output(place(a.total_rows() * a.dv), NAN), lse(place(a.total_rows()), NAN) {}
};

DecodePlan run(Arguments a, const Results& results, std::uint64_t seed) {
  const auto plan = plan_decode({.batches = a.batches,
                                 .rows = std::int64_t{a.group} * a.sq,
                                 .key_begin = std::clamp<std::int64_t>(a.first, 0, a.sk),
                                 .key_end = std::clamp<std::int64_t>(a.sq - 1 + a.last, std::max<std::int64_t>(a.first, 0), a.sk),
                                 .d = a.d,
                                 .dv = a.dv},
                                a.sk, 227 << 10);
  require(plan.has_value(), "plan");
  Buffer<unsigned char> partials(place(plan->partial_bytes), 0xff);
  a.output = results.output.data(), a.lse = results.lse.data();
  emulation::launch_options() = {.seed = seed, .concurrent_ctas = 3};
  launch_decode(*plan, a, partials.data(), nullptr);
  return *plan;
}

/// Equal bits of `rows` rows; NaN equals NaN.
void require_equal(const Results& got, std::int64_t got_row, const Results& wanted, std::int64_t wanted_row, std::int64_t rows,
                   int dv, const std::string& what) {
  const auto equal = [](float x, float y) { return std::bit_cast<int>(x) == std::bit_cast<int>(y) || (x != x && y != y); };
  for (std::int64_t i = 0; i < rows; ++i) {
    bool same = equal(got.lse[place(got_row + i)], wanted.lse[place(wanted_row + i)]);
    for (int x = 0; x < dv; ++x)
      same = same && equal(got.output[place((got_row + i) * dv + x)], wanted.output[place((wanted_row + i) * dv + x)]);
    require(same, "equal bits " + what);
  }
}

void check(const Case& c) {
  const int all_heads = c.inner * c.group;
  const std::int64_t rows = std::int64_t{c.outer} * all_heads * c.sq;
  Arguments a = sizes_of(c, DType::f32);
  const double scale = 1.7 / std::sqrt(c.d);
  a.scale = c.softcap == 0 ? scale : c.softcap, a.cap_scale = c.softcap == 0 ? 0 : scale / c.softcap;
  a.first = c.first, a.last = c.last;

  // The memory between the elements is NaN.
  const auto operand = [&](Buffer<float>& x, int heads, int length, int columns, int group) {
    const int pitch = c.bshd == 3 ? columns + 1 : columns, base = c.bshd == 3 ? 1 : 0;
    Operand o{.data = x.data() + base, .column = c.bshd == 2 ? length : 1};
    const std::int64_t head = c.bshd == 1 ? pitch : std::int64_t{length} * pitch;
    o.row = c.bshd == 1 ? std::int64_t{heads} * pitch : c.bshd == 2 ? 1 : pitch;
    o.group = head, o.batch[1] = head * group, o.batch[0] = std::int64_t{heads} * length * pitch;
    o.vector = c.bshd < 2 && columns % 4 == 0;
    return o;
  };
  const auto fill = [&](int heads, int length, int columns, std::uint64_t seed) {
    const std::int64_t pitch = c.bshd == 3 ? columns + 1 : columns, count = std::int64_t{c.outer} * heads * length * pitch;
    Buffer<float> x = random_numbers<float>(place(count + (c.bshd == 3)), seed);
    if (c.bshd == 3)
      for (std::int64_t i = 0; i <= count; i += pitch) x[place(i)] = NAN;
    return x;
  };
  Buffer<float> query = fill(all_heads, c.sq, c.d, c.seed), key = fill(c.inner, c.sk, c.d, c.seed + 1),
                value = fill(c.inner, c.sk, c.dv, c.seed + 2);
  a.query = operand(query, all_heads, c.sq, c.d, c.group);
  a.key = operand(key, c.inner, c.sk, c.d, 1), a.value = operand(value, c.inner, c.sk, c.dv, 1);
  const auto at = [](const Operand& x, std::int64_t i) -> float& { return static_cast<float*>(const_cast<void*>(x.data))[i]; };
  Buffer<float> sinks = random_numbers<float>(place(c.sinks == 1 ? all_heads : c.outer * all_heads), c.seed + 4);
  for (std::size_t i = 0; i < sinks.size(); ++i) sinks[i] *= c.sinks == 1 ? 8.f : 1.f;  // far below the scores to far above
  if (c.sinks != 0) {
    a.sinks.data = sinks.data(), a.sinks_dtype = DType::f32;
    a.sinks.group = 1, a.sinks.batch[1] = c.group, a.sinks.batch[0] = c.sinks == 1 ? 0 : all_heads;
  }

  // Key and value sk / 2 of the last key head.
  const std::int64_t last_key = (c.outer - 1) * a.key.batch[0] + (c.inner - 1) * a.key.batch[1] + c.sk / 2 * a.key.row;
  if (c.special == 1) at(a.key, last_key + (c.d - 1) * a.key.column) = NAN;
  if (c.special == 2) {
    for (int x = 0; x < c.d; ++x) at(a.key, last_key + x * a.key.column) = x == c.d - 1 ? INFINITY : 0.f;
    for (std::size_t i = 0; i < query.size(); ++i) query[i] = std::abs(query[i]) + 0.01f;
  }
  if (c.special == 4)
    at(a.value, (c.outer - 1) * a.value.batch[0] + (c.inner - 1) * a.value.batch[1] + c.sk / 2 * a.value.row) = NAN;

  // The mask: (outer, heads or 1, rows or 1, sk).
  const std::int64_t mask_heads = c.heads ? all_heads : 1, mask_rows = c.rows ? c.sq : 1;
  const auto elements = place(c.mask ? std::int64_t{c.outer} * mask_heads * mask_rows * c.sk : 0);
  std::vector<double> bias(elements);
  std::mt19937_64 random(c.seed + 3);
  const double raised = c.special == 2 ? 100 : 0;  // e^100 is infinite
  for (std::size_t i = 0; i < elements; ++i) {
    const auto k = static_cast<std::int64_t>(i) % c.sk, row = static_cast<std::int64_t>(i) / c.sk % mask_rows;
    const bool away = c.rows && c.heads ? row / 7 != k / 100 : random() % 4 == 0;
    bias[i] = c.special == 3 && row % 3 == 0 ? std::numeric_limits<float>::lowest()
              : away                         ? -INFINITY
              : c.mask == 1                  ? 0
                                             : static_cast<double>(random() % 64) / 16 + raised;
  }
  Buffer<unsigned char> flags(c.mask == 1 ? elements : 0);
  Buffer<float> floats(c.mask == 3 ? elements : 0);
  for (std::size_t i = 0; i < elements; ++i) {
    if (c.mask == 1) flags[i] = bias[i] == 0;
    if (c.mask == 3) floats[i] = static_cast<float>(bias[i]);
  }
  if (c.mask == 1) set_mask(a, c, flags.data(), DType::boolean);
  if (c.mask == 3) set_mask(a, c, floats.data(), DType::f32);

  const Results results(a);
  const DecodePlan plan = run(a, results, c.seed);
  std::cout << "tile " << plan.tile << " row tiles " << plan.row_tiles << " splits " << plan.splits << ": " << std::flush;

  const std::int64_t head_rows = std::int64_t{all_heads} * c.sq;
  const Arguments last = last_batch(a);
  const Results alone(last);
  run(last, alone, c.seed + 5);
  require_equal(alone, 0, results, (c.outer - 1) * head_rows, head_rows, c.dv, "of the last batch alone");

  Arguments one_head = last;
  one_head.group = 1;
  one_head.query.vector = one_head.key.vector = one_head.value.vector = false;
  const Results one(one_head);
  run(one_head, one, c.seed + 6);
  for (int head = 0; head < c.inner; ++head)
    require_equal(one, std::int64_t{head} * c.sq, alone, std::int64_t{head} * c.group * c.sq, c.sq, c.dv,
                  "of one head by elements");

  std::vector<double> expected(results.output.size()), allowed(expected.size()), expected_lse(results.lse.size()),
      allowed_lse(expected_lse.size());
  std::vector<double> weights(place(c.sk));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t o = row / head_rows, head = row / c.sq % all_heads, i = row % c.sq, kv = head / c.group;
    const std::int64_t begin = std::clamp<std::int64_t>(i + c.first, 0, c.sk),
                       end = std::clamp<std::int64_t>(i + c.last, begin, c.sk);
    const double sink = c.sinks == 0 ? -INFINITY : sinks[place((c.sinks == 1 ? 0 : o * all_heads) + head)];
    const auto bias_at = [&](std::int64_t j) {
      return c.mask ? bias[place(((o * mask_heads + (c.heads ? head : 0)) * mask_rows + (c.rows ? i : 0)) * c.sk + j)] : 0.;
    };
    double largest = -INFINITY;
    for (std::int64_t j = begin; j < end; ++j) {
      double score = 0;
      for (int x = 0; x < c.d; ++x)
        score +=
            static_cast<double>(at(a.query, o * a.query.batch[0] + head * a.query.group + i * a.query.row + x * a.query.column)) *
            at(a.key, o * a.key.batch[0] + kv * a.key.batch[1] + j * a.key.row + x * a.key.column);
      score *= scale;
      if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
      const double b = bias_at(j);
      weights[place(j)] = b == std::numeric_limits<float>::lowest() ? b : score + b;
      largest = std::max(largest, weights[place(j)]);
    }
    const bool special = o == c.outer - 1 && kv == c.inner - 1;
    const bool seen = special && begin <= c.sk / 2 && c.sk / 2 < end;
    const bool hidden = bias_at(c.sk / 2) == -INFINITY;  // +inf - inf is NaN, a NaN score stays NaN
    const bool poisoned = seen && (c.special == 1 || (c.special == 2 && c.softcap == 0));
    const double keys_largest = largest;
    largest = std::max(largest, sink);
    double sum = 0;
    for (std::int64_t j = begin; j < end; ++j)
      sum += weights[place(j)] = keys_largest == -INFINITY ? 0 : std::exp(weights[place(j)] - largest);
    if (c.sinks != 0) sum += std::exp(sink - largest);
    expected_lse[place(row)] = sum == 0 ? -INFINITY : largest + std::log(sum);
    allowed_lse[place(row)] = 1e-5 * std::max(1., std::abs(expected_lse[place(row)]));
    for (int x = 0; x < c.dv; ++x) {
      double y = 0, magnitude = 0;
      for (std::int64_t j = begin; j < end; ++j) {
        const double v = at(a.value, o * a.value.batch[0] + kv * a.value.batch[1] + j * a.value.row + x * a.value.column);
        y += weights[place(j)] * v, magnitude += weights[place(j)] * std::abs(v);
      }
      const auto to = place(row * c.dv + x);
      expected[to] = sum == 0 ? 0 : y / sum;
      allowed[to] = sum == 0 ? 0 : magnitude / sum * (raised == 0 ? 1e-5 : 4e-5);
      const bool nan_value = c.special == 4 && special && x == 0;  // a row of the same tile may have it too
      if (poisoned || (nan_value && seen)) require(std::isnan(results.output[to]), "NaN in a row that sees it");
      if (poisoned || nan_value) results.output[to] = 0, expected[to] = 0, allowed[to] = 0;
    }
    if (poisoned) {
      const float lse = results.lse[place(row)];
      require(c.special == 2 && !hidden ? lse == INFINITY : std::isnan(lse), "NaN or +inf log-sum-exp");
      results.lse[place(row)] = 0, expected_lse[place(row)] = 0;
    }
  }
  require_close(results.output, expected, allowed, "output");
  require_close(results.lse, expected_lse, allowed_lse, "log-sum-exp");
}

}  // namespace

int main() { return check_cases(check); }
