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

void check(Case c) {
#ifdef WIDE
  kLatent = std::exchange(c.mask, 0) == 9;
#endif
  constexpr bool kHalf = std::is_same_v<T, half>;
  const int all_heads = c.inner * c.group;
  // Poisoned out of bounds: a few elements after each operand.
  const auto fill = [&](std::int64_t count, std::uint64_t seed) { return random_numbers<T>(count, seed); };
  const Buffer<T> query = fill(std::int64_t{c.outer} * all_heads * c.sq * c.d, c.seed),
                  key = fill(std::int64_t{c.outer} * c.inner * c.sk * c.d, c.seed + 1),
                  value = fill(std::int64_t{c.outer} * c.inner * c.sk * c.dv, c.seed + 2);
  const std::int64_t rows = std::int64_t{c.outer} * all_heads * c.sq;
  Buffer<T> output(rows * c.dv, static_cast<T>(NAN));
  Buffer<float> lse(rows, NAN);

  Arguments a = sizes_of(c, kHalf ? DType::f16 : DType::bf16);
  const double scale = 1.7 / std::sqrt(c.d);
  a.scale = c.softcap == 0 ? scale : c.softcap, a.cap_scale = c.softcap == 0 ? 0 : scale / c.softcap;
  a.first = c.first, a.last = c.last;
  const Buffer<T> own_sinks = fill(std::int64_t{c.outer} * all_heads, c.seed + 4);
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

  // Key sk / 2 of the last key head.
  T* const special_key = key.data() + (c.outer - 1) * a.key.batch[0] + (c.inner - 1) * a.key.batch[1] + c.sk / 2 * a.key.row;
  if (c.special == 1) special_key[1] = static_cast<T>(NAN);
  if (c.special == 2) {
    for (int x = 0; x < c.d; ++x) special_key[x] = static_cast<T>(x == 1 ? INFINITY : 0.f);
    for (std::size_t i = 0; i < query.size(); ++i) query[i] = static_cast<T>(std::abs(static_cast<float>(query[i])) + 0.01f);
  }

  // The mask: (outer or 1, heads or 1, rows or 1, sk), with bshd rows before heads in memory. Poisoned between the rows.
  const std::int64_t mask_heads = c.heads ? all_heads : 1, mask_rows = c.rows ? c.sq : 1, mask_outer = c.shared ? 1 : c.outer;
  const auto elements = c.mask ? mask_outer * mask_heads * mask_rows * c.sk : 0;
  const std::int64_t pitch = c.aligned ? (c.sk + 15) / 16 * 16 : c.sk, mask_batch = mask_heads * mask_rows * pitch;
  const std::int64_t mask_head = c.bshd ? pitch : mask_rows * pitch, mask_row = c.bshd ? mask_heads * pitch : pitch;
  std::vector<double> bias(elements);
  const auto bias_of = [&](std::int64_t o, std::int64_t head, std::int64_t row, std::int64_t k) {
    return bias[(((c.shared ? 0 : o) * mask_heads + (c.heads ? head : 0)) * mask_rows + (c.rows ? row : 0)) * c.sk + k];
  };
  std::mt19937_64 random(c.seed + 3);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto k = static_cast<std::int64_t>(i) % c.sk, row = static_cast<std::int64_t>(i) / c.sk % mask_rows;
    const bool away = c.rows && c.heads ? row / 100 != k / 100 : random() % 4 == 0;
    if (c.special == 3 && row % 3 == 0) {
      bias[i] = c.mask == 3 ? std::numeric_limits<float>::lowest() : kHalf ? -65504. : -0x1.fep127;
      continue;
    }
    if (c.special == 4 && row % 3 == 0) {
      bias[i] = c.mask == 2 && kHalf ? -0x1.8p14 : -0x1.8p29;
      continue;
    }
    bias[i] = away ? -INFINITY : c.mask == 1 ? 0 : static_cast<double>(static_cast<T>(static_cast<float>(random() % 64) / 16.f));
  }
  const auto places = mask_outer * mask_batch;
  Buffer<unsigned char> flags(c.mask == 1 ? places : 0, 1);
  Buffer<T> halves(c.mask == 2 ? places : 0, static_cast<T>(NAN));
  Buffer<float> floats(c.mask == 3 ? places : 0, NAN);
  for (std::size_t from = 0; from < elements; ++from) {
    const auto line = static_cast<std::int64_t>(from) / c.sk;
    const std::size_t i = line / mask_rows / mask_heads * mask_batch + line / mask_rows % mask_heads * mask_head +
                          line % mask_rows * mask_row + static_cast<std::int64_t>(from) % c.sk;
    if (c.mask == 1) flags[i] = bias[from] == 0 ? static_cast<unsigned char>(1 + i % 2 * 254) : 0;
    if (c.mask == 2) halves[i] = static_cast<T>(static_cast<float>(bias[from]));
    if (c.mask == 3) floats[i] = static_cast<float>(bias[from]);
  }
  if (c.mask) {
    a.masked = true;
    a.mask_dtype = c.mask == 1 ? DType::boolean : c.mask == 2 ? a.dtype : DType::f32;
    a.mask.data = c.mask == 1   ? static_cast<void*>(flags.data())
                  : c.mask == 2 ? static_cast<void*>(halves.data())
                                : floats.data();
    a.mask.column = 1, a.mask.row = c.rows ? mask_row : 0;
    a.mask.group = c.heads ? mask_head : 0;
    a.mask.batch[1] = c.heads ? c.group * mask_head : 0, a.mask.batch[0] = c.shared ? 0 : mask_batch;
  }

  const auto run = [&](const Arguments& arguments, int sm_count, std::uint64_t seed) {
    Problem problem = tile_problem(arguments);
    problem.sm_count = sm_count, problem.batch_invariant = kInvariant && c.seed % 2 == 1;
    const auto plan = make_plan(problem);
    require(plan.has_value(), "plan");
    Buffer<unsigned char> counters(plan->counter_bytes(), 0), memory(plan->memory_bytes(), 0xff);
    emulation::launch_options() = {.seed = seed, .concurrent_ctas = 3};
    require(launch(*plan, arguments, counters.data(), memory.data()), "launch");
    for (std::size_t i = 0; i < counters.size(); ++i) require(counters[i] == 0, "zero counter afterwards");
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

  std::vector<double> expected(output.size()), allowed(output.size()), expected_lse(lse.size()), allowed_lse(lse.size());
  const std::vector<double> queries = doubles(query), keys_of_all = doubles(key),
                            values = a.value.data == a.key.data ? keys_of_all : doubles(value);
  std::vector<double> weights(c.sk), sums(c.dv), magnitudes(c.dv);
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t o = row / c.sq / all_heads, head = row / c.sq % all_heads, i = row % c.sq, kv = head / c.group;
    const std::int64_t begin = std::clamp<std::int64_t>(i + c.first, 0, c.sk),
                       keys = std::clamp<std::int64_t>(i + c.last, begin, c.sk);
    const double sink = c.sinks == 0 ? -INFINITY : sinks[o * all_heads + head];
    const std::int64_t q = o * a.query.batch[0] + head * a.query.group + i * a.query.row;
    const double* const k = keys_of_all.data() + o * a.key.batch[0] + kv * a.key.batch[1];
    const double* const v = values.data() + o * a.value.batch[0] + kv * a.value.batch[1];
    double sum = 0, largest = -INFINITY;
    for (std::int64_t j = begin; j < keys; ++j) {
      double score = scale * dot(queries.data() + q, k + j * a.key.row, c.d).sum;
      if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
      if (c.mask) {
        const double b = bias_of(o, head, i, j);
        score = c.mask == 1 && b != 0 ? b : score + b;
        if (c.special == 4 && b == -0x1.8p29) score = static_cast<float>(score);
      }
      weights[j] = score, largest = std::max(largest, score);
    }
    const bool seen = o == c.outer - 1 && kv == c.inner - 1 && begin <= c.sk / 2 && c.sk / 2 < keys &&
                      (!c.mask || bias_of(o, head, i, c.sk / 2) != -INFINITY);
    const bool poisoned = (c.special == 1 || (c.special == 2 && c.softcap == 0)) && seen;  // tanh(inf) is 1
    // A key that the row does not see, but another row of its tile does: the score is masked, the value is not changed.
    if (c.special == 1 && !seen && o == c.outer - 1 && kv == c.inner - 1 && begin <= c.sk / 2 && c.sk / 2 < keys)
      weights[c.sk / 2] = -INFINITY;
    const double keys_largest = largest;
    largest = std::max(largest, sink);
    for (std::int64_t j = begin; j < keys; ++j)
      sum += weights[j] = keys_largest == -INFINITY ? 0 : std::exp(weights[j] - largest);
    if (c.sinks != 0) sum += std::exp(sink - largest);
    expected_lse[row] = largest + std::log(sum), allowed_lse[row] = 2e-5 * std::max(1., std::abs(expected_lse[row]));
    if (sum == 0) expected_lse[row] = -INFINITY;
    std::fill(sums.begin(), sums.end(), 0), std::fill(magnitudes.begin(), magnitudes.end(), 0);
    for (std::int64_t j = begin; j < keys; ++j)
      add_multiple(weights[j], v + j * a.value.row, c.dv, sums.data(), magnitudes.data());
    for (int x = 0; x < c.dv; ++x) {
      const double y = sums[x], magnitude = magnitudes[x];
      const double epsilon = kHalf ? 0x1p-11 : 0x1p-8;
      // A score beside -65504 or -1.5 2^14 is rounded to a multiple of 2^-8 in fp32 (wider types' lowest numbers hide it whole).
      const double of_weights = kHalf && c.special >= 3 && c.mask == 2 && i % 3 == 0 ? 0x1p-8 : 1.5 * epsilon;
      expected[row * c.dv + x] = sum == 0 ? 0 : y / sum;
      allowed[row * c.dv + x] = sum == 0 ? 0 : magnitude / sum * of_weights + std::abs(y / sum) * epsilon + (kHalf ? 0x1p-23 : 0);
      if (poisoned) {
        require(std::isnan(static_cast<float>(output[row * c.dv + x])), "NaN in a row that sees a NaN or +inf score");
        output[row * c.dv + x] = static_cast<T>(0.f), expected[row * c.dv + x] = 0;
        allowed[row * c.dv + x] = 0;
      }
    }
    if (poisoned) {
      require(c.special == 2 ? lse[row] == INFINITY : std::isnan(lse[row]), "NaN or +inf log-sum-exp");
      lse[row] = 0, expected_lse[row] = 0, allowed_lse[row] = 0;
    }
  }
  require_close(output, expected, allowed, "output");
  require_close(lse, expected_lse, allowed_lse, "log-sum-exp");
}

}  // namespace

int main() { return check_cases(check); }
