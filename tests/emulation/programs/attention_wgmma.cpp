// csrc/attention/wgmma against attention in double. Each line of the standard input is a case:
//   seed sm_count outer inner group sq sk d dv bshd first last mask heads rows special softcap sinks aligned shared
// bf16. bshd: positions before heads in memory. Row i sees keys i + first to i + last - 1. mask: 0 none, 1
// boolean, 2 additive of the operands' dtype, 3 additive fp32; heads, rows: does it differ by query head, by position? If by
// both, keys of other documents (100 positions each) are masked. special: 1 a NaN key, 2 a score of +inf, 3 an additive mask of
// the lowest number in every third row, 4 one of -1.5 2^29 (fp16: -1.5 2^14), next to which fp32 has no digits left for a
// score. sinks: 1 a float for each query head, 2 one of the operands' dtype for each query head and outer batch. aligned: the
// mask's rows begin at multiples of 16 bytes; shared: all outer batches have one mask. The last outer batch alone, with another
// seed and number of SMs, must give the same bits. With FAMILY_MMA (attention_mma.cpp) the same of csrc/attention/mma in fp16: of
// its kernel for few rows or, with MANY_ROWS (attention_many_rows.cpp), for many. With WIDE (attention_wide.cpp) wide.cu's;
// mask 9: the values are the keys' first columns.
#ifdef FAMILY_MMA
#include "attention/mma/launch.h"
#endif
#include "attention/wgmma/launch.h"
#include "attention/wgmma/tiles.h"
#include "attention/wgmma/wide.h"
#include "device/numeric.cuh"
#include "programs/attention_case.h"

using namespace xgemm;
using namespace xgemm::attention;

namespace {

#ifdef FAMILY_MMA
#ifdef MANY_ROWS
std::optional<Plan> make_plan(const Problem& problem) { return plan_many_rows(problem, 227 << 10); }
#else
std::optional<Plan> make_plan(const Problem& problem) { return plan_few_rows(problem, 160 << 10); }
#endif
bool launch(const Plan& plan, const Arguments& arguments, void*, void* memory) {
  launch_mma(plan, arguments, memory, nullptr);
  return true;
}
const char* masks(const Plan&, const Arguments&) { return ""; }
using T = half;
#elif defined(WIDE)
bool kLatent = false;  ///< of the case: its mask, of which there is none, is 9
std::optional<Plan> make_plan(const Problem& problem) { return plan_wide(problem, kLatent); }
bool launch(const Plan& plan, const Arguments& arguments, void*, void* memory) {
  return launch_wide(plan, arguments, memory, nullptr);
}
const char* masks(const Plan&, const Arguments&) { return ""; }
using T = bf16;
#else
std::optional<Plan> make_plan(Problem problem) {
  problem.table = kWgmmaTiles;
  return plan_tiles(problem);
}
bool launch(const Plan& plan, const Arguments& arguments, void* counters, void* memory) {
  return launch_wgmma(plan, arguments, counters, memory, nullptr);
}
const char* masks(const Plan& plan, const Arguments& arguments) {
  return launched_masking(plan, arguments) == Masking::additive_tma ? " mask by TMA" : "";
}
using T = bf16;
#endif

/// Splits that follow the GPU, so that bits are promised in batch-invariant mode alone: cases of odd seeds.
#ifdef WIDE
constexpr bool kInvariant = true;
#else
constexpr bool kInvariant = false;
#endif

void check(const Case& of_input) {
  Case c = of_input;
#ifdef WIDE
  kLatent = std::exchange(c.mask, 0) == 9;
#endif
  constexpr bool kHalf = std::is_same_v<T, half>;
  const int all_heads = c.inner * c.group;
  const Buffer<T> query = random_numbers<T>(std::int64_t{c.outer} * all_heads * c.sq * c.d, c.seed),
                  key = random_numbers<T>(std::int64_t{c.outer} * c.inner * c.sk * c.d, c.seed + 1),
                  value = random_numbers<T>(std::int64_t{c.outer} * c.inner * c.sk * c.dv, c.seed + 2);
  const std::int64_t rows = std::int64_t{c.outer} * all_heads * c.sq;
  Buffer<T> output(rows * c.dv, static_cast<T>(NAN));
  Buffer<float> lse(rows, NAN);

  Arguments a = sizes_of(c, kHalf ? DType::f16 : DType::bf16);
  const double scale = set_scale(a, 1.7 / std::sqrt(c.d), c.softcap);
  const Buffer<T> own_sinks = random_numbers<T>(std::int64_t{c.outer} * all_heads, c.seed + 4);
  Buffer<float> sinks(own_sinks.size());
  for (std::size_t i = 0; i < sinks.size(); ++i)  // of sizes from far below the scores to far above
    sinks[i] = static_cast<float>(own_sinks[c.sinks == 1 ? i % all_heads : i]) * (c.sinks == 1 ? 8.f : 1.f);
  if (c.sinks != 0) {
    a.sinks.data = c.sinks == 1 ? static_cast<const void*>(sinks.data()) : own_sinks.data();
    a.sinks_dtype = c.sinks == 1 ? DType::f32 : a.dtype;
    a.sinks.group = 1, a.sinks.batch[1] = c.group, a.sinks.batch[0] = c.sinks == 1 ? 0 : all_heads;
  }
  set_operands(a, c, query, key, value);
#ifdef WIDE
  if (kLatent) a.value = a.key;
#endif
  a.output = output.data(), a.lse = lse.data();

  poison_key(c, a, query, key);
  std::optional<double> lowest;
  if (c.special == 3) lowest = c.mask == 3 ? std::numeric_limits<float>::lowest() : kHalf ? -65504. : -0x1.fep127;
  if (c.special == 4) lowest = c.mask == 2 && kHalf ? -0x1.8p14 : -0x1.8p29;
  const RandomMask<T> mask(c, lowest);
  mask.set(a, c);

  const auto run = [&](const Arguments& arguments, int sm_count, std::uint64_t seed) {
    Problem problem = tile_problem(arguments);
    problem.sm_count = sm_count, problem.batch_invariant = kInvariant && c.seed % 2 == 1;
    const auto plan = make_plan(problem);
    require(plan.has_value(), "plan");
    Buffer<unsigned char> counters(plan->counter_bytes(), 0), memory(plan->memory_bytes(), 0xff);
    emulation::launch_options() = {.seed = seed, .concurrent_ctas = 3};
    require(launch(*plan, arguments, counters.data(), memory.data()), "launch");
    require_zeros(counters);
    return *plan;
  };
  Arguments large = a;
  large.scale = 1025, large.cap_scale = 1;
  require(!make_plan(tile_problem(large)).has_value(), "no plan for a cap whose rounding shows");
  const Plan plan = run(a, c.sm_count, c.seed);
  std::cout << "tile " << plan.tile << " packed " << plan.packed << " splits " << plan.splits << masks(plan, a) << ": "
            << std::flush;

  // Always in the batch-invariant mode, where keys are not split.
  check_last_batch(c, a, output, lse, plan.splits, [&](const auto&... more) { return run(more...).splits; });

  Expected expected(output.size()), expected_lse(lse.size());
  const std::vector<double> queries = doubles(query), keys = doubles(key),
                            values = a.value.data == a.key.data ? keys : doubles(value);
  AttentionRow exact(c.dv);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t o = row / c.sq / all_heads, head = row / c.sq % all_heads, i = row % c.sq, kv = head / c.group,
                       begin = std::clamp<std::int64_t>(i + c.first, 0, c.sk),
                       end = std::clamp<std::int64_t>(i + c.last, begin, c.sk), special = c.sk / 2;
    const bool in_reach = o == c.outer - 1 && kv == c.inner - 1 && begin <= special && special < end,
               seen = in_reach && (!c.mask || mask.at(o, head, i, special) != -INFINITY);
    exact.attend(queries.data() + o * a.query.batch[0] + head * a.query.group + i * a.query.row, c.d,
                 {keys.data() + o * a.key.batch[0] + kv * a.key.batch[1], a.key.row},
                 {values.data() + o * a.value.batch[0] + kv * a.value.batch[1], a.value.row}, begin, end,
                 c.sinks == 0 ? -INFINITY : sinks[o * all_heads + head], [&](std::int64_t j, const Dot& product) -> double {
                   // A key that the row does not see, but another row of its tile does: the score is masked, not the value.
                   if (c.special == 1 && in_reach && !seen && j == special) return -INFINITY;
                   const double score = capped(scale * product.sum, c.softcap), bias = c.mask ? mask.at(o, head, i, j) : 0;
                   if (c.mask == 1 && bias != 0) return bias;
                   return c.special == 4 && bias == -0x1.8p29 ? static_cast<float>(score + bias) : score + bias;
                 });
    const bool poisoned = seen && (c.special == 1 || (c.special == 2 && c.softcap == 0));  // tanh(inf) is 1
    const double epsilon = kHalf ? 0x1p-11 : 0x1p-8;
    // A score beside -65504 or -1.5 2^14 is rounded to a multiple of 2^-8 in fp32 (wider types' lowest numbers hide it whole).
    const double of_weights = kHalf && c.special >= 3 && c.mask == 2 && i % 3 == 0 ? 0x1p-8 : 1.5 * epsilon;
    for (int x = 0; x < c.dv; ++x) {
      const std::int64_t at = row * c.dv + x;
      if (poisoned) {
        require(std::isnan(static_cast<float>(output[at])), "NaN in a row that sees a NaN or +inf score");
        expected.skip(at);
      } else if (exact.sees_keys) {
        const double y = exact.output[x];
        expected.set(at, y, exact.magnitudes[x] * of_weights + std::abs(y) * epsilon + (kHalf ? 0x1p-23 : 0));
      }
    }
    if (poisoned) {
      require(c.special == 2 ? lse[row] == INFINITY : std::isnan(lse[row]), "NaN or +inf log-sum-exp");
      expected_lse.skip(row);
    } else {
      expected_lse.set(row, exact.lse, 2e-5 * std::max(1., std::abs(exact.lse)));
    }
  }
  expected.compare(output, "output");
  expected_lse.compare(lse, "log-sum-exp");
}

}  // namespace

int main() { return check_cases<Case>(check); }
