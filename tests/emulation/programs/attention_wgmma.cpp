// csrc/attention/wgmma against attention in double. Each line of the standard input is a case:
//   seed sm_count outer inner group sq sk d dv bshd causal shift mask heads rows
// bshd: positions before heads in memory. mask: 0 none, 1 boolean, 2 additive of the operands' dtype, 3 additive fp32; heads,
// rows: does it differ by query head, by position? Keys of whole documents of 100 positions are masked where both differ.
#include <algorithm>
#include <iostream>
#include <random>

#include "attention/wgmma/launch.h"
#include "check.h"
#include "device/numeric.cuh"

using namespace xgemm;
using namespace xgemm::attention;
using T = bf16;

namespace {

std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Case {
  std::uint64_t seed;
  int sm_count, outer, inner, group, sq, sk, d, dv, bshd, causal, shift, mask, heads, rows;
};

void check(const Case& c) {
  const int all_heads = c.inner * c.group;
  // Poisoned beyond what the op may read: a few elements behind each operand.
  const auto fill = [&](std::int64_t count, std::uint64_t seed) { return random_numbers<T>(place(count), seed); };
  const Buffer<T> query = fill(std::int64_t{c.outer} * all_heads * c.sq * c.d, c.seed),
                  key = fill(std::int64_t{c.outer} * c.inner * c.sk * c.d, c.seed + 1),
                  value = fill(std::int64_t{c.outer} * c.inner * c.sk * c.dv, c.seed + 2);
  const std::int64_t rows = std::int64_t{c.outer} * all_heads * c.sq;
  Buffer<T> output(place(rows * c.dv), static_cast<T>(NAN));
  Buffer<float> lse(place(rows), NAN);

  Arguments a;
  a.dtype = DType::bf16;
  a.batch_dims = 2;
  a.batch_sizes[0] = static_cast<unsigned>(c.outer), a.batch_sizes[1] = static_cast<unsigned>(c.inner);
  a.batches = static_cast<unsigned>(c.outer * c.inner);
  a.group = c.group, a.sq = c.sq, a.sk = c.sk, a.d = c.d, a.dv = c.dv;
  a.scale = 1.7 / std::sqrt(c.d);
  a.causal = c.causal != 0, a.shift = c.shift;
  const auto operand = [&](const Buffer<T>& x, int heads, int length, int columns, int group) {
    Operand o{.data = x.data(), .column = 1};
    const std::int64_t head = c.bshd ? columns : std::int64_t{length} * columns;
    o.row = c.bshd ? std::int64_t{heads} * columns : columns;
    o.group = head, o.batch[1] = head * group, o.batch[0] = std::int64_t{heads} * length * columns;
    o.vector = true;
    return o;
  };
  a.query = operand(query, all_heads, c.sq, c.d, c.group);
  a.key = operand(key, c.inner, c.sk, c.d, 1), a.value = operand(value, c.inner, c.sk, c.dv, 1);
  a.output = output.data(), a.lse = lse.data();

  // The mask: (outer, heads or 1, rows or 1, sk).
  const std::int64_t mask_heads = c.heads ? all_heads : 1, mask_rows = c.rows ? c.sq : 1;
  const auto elements = place(c.mask ? std::int64_t{c.outer} * mask_heads * mask_rows * c.sk : 0);
  std::vector<double> bias(elements);
  std::mt19937_64 random(c.seed + 3);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto k = static_cast<std::int64_t>(i) % c.sk, row = static_cast<std::int64_t>(i) / c.sk % mask_rows;
    const bool away = c.rows && c.heads ? row / 100 != k / 100 : random() % 4 == 0;
    bias[i] = away ? -INFINITY : c.mask == 1 ? 0 : static_cast<double>(static_cast<T>(static_cast<float>(random() % 64) / 16.f));
  }
  Buffer<unsigned char> flags(c.mask == 1 ? elements : 0);
  Buffer<T> halves(c.mask == 2 ? elements : 0);
  Buffer<float> floats(c.mask == 3 ? elements : 0);
  for (std::size_t i = 0; i < elements; ++i) {
    if (c.mask == 1) flags[i] = bias[i] == 0 ? static_cast<unsigned char>(1 + i % 2 * 254) : 0;
    if (c.mask == 2) halves[i] = static_cast<T>(static_cast<float>(bias[i]));
    if (c.mask == 3) floats[i] = static_cast<float>(bias[i]);
  }
  if (c.mask) {
    a.masked = true;
    a.mask_dtype = c.mask == 1 ? DType::boolean : c.mask == 2 ? a.dtype : DType::f32;
    a.mask.data = c.mask == 1   ? static_cast<void*>(flags.data())
                  : c.mask == 2 ? static_cast<void*>(halves.data())
                                : floats.data();
    a.mask.column = 1, a.mask.row = c.rows ? c.sk : 0;
    a.mask.group = c.heads ? mask_rows * c.sk : 0;
    a.mask.batch[1] = c.heads ? c.group * mask_rows * c.sk : 0, a.mask.batch[0] = mask_heads * mask_rows * c.sk;
  }

  WgmmaProblem problem = wgmma_problem(a);
  problem.sm_count = c.sm_count;
  const auto plan = plan_wgmma(problem);
  require(plan.has_value(), "plan");
  std::cout << "tile " << plan->tile << " packed " << plan->packed << " parts " << plan->parts << ": " << std::flush;
  Buffer<unsigned char> counters(place(plan->counter_bytes()), 0), memory(place(plan->memory_bytes()), 0xff);
  emulation::launch_options() = {.seed = c.seed, .concurrent_ctas = 3};
  require(launch_wgmma(*plan, a, counters.data(), memory.data(), nullptr), "launch");
  for (std::size_t i = 0; i < counters.size(); ++i) require(counters[i] == 0, "zero counter afterwards");

  std::vector<double> expected(output.size()), allowed(output.size()), expected_lse(lse.size()), allowed_lse(lse.size());
  const auto at = [](const Buffer<T>& x, std::int64_t i) { return static_cast<double>(static_cast<float>(x[place(i)])); };
  std::vector<double> weights(place(c.sk));
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t o = row / c.sq / all_heads, head = row / c.sq % all_heads, i = row % c.sq, kv = head / c.group;
    const std::int64_t keys = c.causal ? std::clamp<std::int64_t>(i + c.shift + 1, 0, c.sk) : c.sk;
    const std::int64_t q = o * a.query.batch[0] + head * a.query.group + i * a.query.row;
    double sum = 0, magnitude = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      double score = 0;
      for (int x = 0; x < c.d; ++x)
        score += at(query, q + x) * at(key, o * a.key.batch[0] + kv * a.key.batch[1] + j * a.key.row + x);
      score *= a.scale;
      if (c.mask) score += bias[place(((o * mask_heads + (c.heads ? head : 0)) * mask_rows + (c.rows ? i : 0)) * c.sk + j)];
      sum += weights[place(j)] = std::exp(score);
    }
    expected_lse[place(row)] = std::log(sum), allowed_lse[place(row)] = 2e-5;
    for (int x = 0; x < c.dv; ++x) {
      double y = 0;
      magnitude = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        const double v = at(value, o * a.value.batch[0] + kv * a.value.batch[1] + j * a.value.row + x);
        y += weights[place(j)] * v, magnitude += weights[place(j)] * std::abs(v);
      }
      expected[place(row * c.dv + x)] = sum == 0 ? 0 : y / sum;
      allowed[place(row * c.dv + x)] = sum == 0 ? 0 : magnitude / sum * 0x1p-8 * 1.5 + std::abs(y / sum) * 0x1p-8;
    }
  }
  require_close(output, expected, allowed, "output");
  for (std::int64_t row = 0; row < rows; ++row)
    if (std::isinf(expected_lse[place(row)])) {
      require(lse[place(row)] == -INFINITY, "-inf log-sum-exp of a row without keys");
      expected_lse[place(row)] = 0, lse[place(row)] = 0;
    }
  require_close(lse, expected_lse, allowed_lse, "log-sum-exp");
}

}  // namespace

int main() {
  Case c;
  int failed = 0;
  while (std::cin >> c.seed >> c.sm_count >> c.outer >> c.inner >> c.group >> c.sq >> c.sk >> c.d >> c.dv >> c.bshd >> c.causal >>
         c.shift >> c.mask >> c.heads >> c.rows)
    failed += run_checks([&] { check(c); });
  return failed;
}
