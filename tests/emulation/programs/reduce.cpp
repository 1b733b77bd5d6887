// Reductions against double: csrc/reduce's own plans and launches over random shapes, sets of reduced dims, strides and base
// addresses. Every call runs twice with other orders of threads and must give the same bits; with batch invariance a row alone,
// too.
#include <optional>
#include <random>

#include "check.h"
#include "reduce/kernels/launch_columns.cuh"
#include "reduce/kernels/launch_rows.cuh"
#include "reduce/kernels/operators/cross_entropy.cuh"
#include "reduce/kernels/operators/maximum.cuh"
#include "reduce/kernels/operators/sum.cuh"

using namespace xgemm;
using namespace xgemm::reduce;

extern "C" cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaSuccess; }

namespace {

/// Compute capability 8.0, on which the CTAs that share a row use counters, and 9.0, on which they form clusters.
DeviceProperties gpu_of(std::uint64_t seed) {
  return {.major = seed / 2 % 2 == 0 ? 8 : 9, .sm_count = 4, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
}

struct Call {
  Kind kind;
  std::vector<std::int64_t> sizes, strides;
  std::uint64_t reduced;
  std::int64_t offset;  // of the first element, in elements
  Loss loss{};          // of cross_entropy
};

Plan plan_of(const Call& call, const void* in, DType dtype, DType to, std::uint64_t seed, bool batch_invariant = false) {
  const Source source{in, dtype, call.sizes, call.strides};
  return make_plan("test",
                   {.kind = call.kind,
                    .source = source,
                    .reduced = call.reduced,
                    .out = to,
                    .loss = call.loss,
                    .batch_invariant = batch_invariant},
                   gpu_of(seed));
}

std::string text_of(const Call& call, const Plan& plan, DType dtype) {
  std::string text = "kind " + std::to_string(int(call.kind)) + " dtype " + std::to_string(int(dtype)) + " sizes";
  for (std::size_t d = 0; d < call.sizes.size(); ++d)
    text += " " + std::to_string(call.sizes[d]) + (call.reduced >> d & 1 ? "r" : "") + ":" + std::to_string(call.strides[d]);
  text += " offset " + std::to_string(call.offset) + " kernel " + std::to_string(plan.kernel.index()) + " threads " +
          std::to_string(reduction_of(plan).threads) + " ctas " + std::to_string(reduction_of(plan).ctas);
  if (const auto* rows = std::get_if<RowPlan>(&plan.kernel))
    text += " lanes " + std::to_string(rows->lanes) + " splits " + std::to_string(rows->splits) + " in a run " +
            std::to_string(rows->splits_per_run) + " ctas a row " + std::to_string(rows->ctas_per_row) + " cluster " +
            std::to_string(rows->cluster);
  if (const auto* columns = std::get_if<ColumnPlan>(&plan.kernel))
    text += " run " + std::to_string(columns->run) + " repeat " + std::to_string(columns->repeat) + " splits " +
            std::to_string(columns->splits);
  return text;
}

// columns, folded runs, folded positions, splits of columns, rows of runs, elements, copies, clusters, short columns (by single
// elements, by vectors, each by a thread and by teams), splits of one step: all must have been tested
int ran[13];

void count_kernel(const Plan& plan) {
  if (const auto* columns = std::get_if<ColumnPlan>(&plan.kernel)) {
    ++ran[columns->repeat > 1 ? 2 : columns->fold_lanes > 0 ? 1 : 0];
    if (columns->splits > 1) ++ran[3];
  }
  if (const auto* rows = std::get_if<RowPlan>(&plan.kernel)) {
    if (rows->splits_per_run > 0) ++ran[4];
    if (rows->cluster > 1) ++ran[7];
    if (rows->splits > 1 && rows->split_vectors < kSplitVectors) ++ran[12];
  }
  if (std::holds_alternative<ElementPlan>(plan.kernel)) ++ran[5];
  if (std::holds_alternative<CopyPlan>(plan.kernel)) ++ran[6];
  if (const auto* columns = std::get_if<ShortColumnPlan>(&plan.kernel))
    ++ran[8 + 2 * (columns->width > 1) + (columns->teams > 1)];
}

/// The bytes of the result.
template <class Op, class Out>
Buffer<Out> run(const Plan& plan, const typename Op::T* in, std::int64_t outputs, std::uint64_t seed) {
  Buffer<Out> out(static_cast<std::size_t>(outputs));
  std::memset(static_cast<void*>(out.data()), 0x5a, static_cast<std::size_t>(outputs) * sizeof(Out));
  Buffer<unsigned char> workspace(plan.workspace_bytes + 256, 0);
  std::memset(workspace.data() + plan.counter_bytes, 0x77, plan.workspace_bytes - plan.counter_bytes);
  const Workspace memory{workspace.data(), workspace.data() + plan.counter_bytes};
  const auto* rows = std::get_if<RowPlan>(&plan.kernel);
  emulation::launch_options() = {.seed = seed, .all_ctas = rows && rows->cluster > 1};
  const auto launch = [&]<class Kernel>(const Kernel& kernel) {
    if constexpr (std::is_same_v<Kernel, CopyPlan>)
      launch_copy(kernel, in, out.data(), nullptr);
    else if constexpr (std::is_same_v<Kernel, RowPlan>)
      launch_rows<Op>(kernel, in, out.data(), memory, nullptr);
    else
      launch_columns<Op>(kernel, in, out.data(), memory, nullptr);
  };
  std::visit(launch, plan.kernel);
  for (std::size_t i = 0; i < plan.counter_bytes; ++i) require(workspace[i] == 0, "counters at zero");
  return out;
}

template <class Op, class Out>
void check(Call p, DType dtype, DType to, std::uint64_t seed) {
  using T = typename Op::T;
  const std::size_t rank = p.sizes.size();
  std::int64_t count = 1, outputs = 1, length = 1, extent = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    count *= p.sizes[d];
    (p.reduced >> d & 1 ? length : outputs) *= p.sizes[d];
    extent += (p.sizes[d] - 1) * p.strides[d];
  }
  Buffer<T> memory = random_numbers<T>(static_cast<std::size_t>(extent + p.offset), seed);
  const bool index = state_of(p.kind) == State::index;
  if (index || state_of(p.kind) == State::maximum)  // ties, infinities, whole columns of the lowest value
    for (std::size_t i = 0; i < memory.size(); ++i) {
      const float x = std::round(static_cast<float>(memory[i]) * 4) / 4;
      memory[i] = static_cast<T>(seed % 3 == 0 ? -INFINITY : x);
      if (seed % 3 == 1 && i % 7 == 3) memory[i] = static_cast<T>(i % 2 ? -INFINITY : INFINITY);
      if (seed % 6 == 5 && i % 501 == 77) memory[i] = static_cast<T>(NAN);
    }
  const T* const in = memory.data() + p.offset;
  Buffer<std::int64_t> target(static_cast<std::size_t>(outputs));
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = static_cast<std::int64_t>(7 * i % static_cast<std::size_t>(length));
  p.loss = {.target = target.data(), .smoothing = seed % 4 < 2 ? 0 : 0.25};
  const Plan plan = plan_of(p, in, dtype, to, seed);
  count_kernel(plan);

  std::vector<double> best(static_cast<std::size_t>(outputs), -INFINITY), sum(best.size()), magnitude(best.size()),
      total(best.size()), logit(best.size());
  std::vector<std::int64_t> where(best.size(), -1);
  const bool low = p.kind == Kind::amin || p.kind == Kind::argmin;
  for (int pass = 0; pass < 2; ++pass)
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, at = 0, o = 0, n = 0, o_step = 1, n_step = 1;
      for (std::size_t d = rank; d-- > 0;) {
        const std::int64_t k = rest % p.sizes[d];
        rest /= p.sizes[d];
        at += k * p.strides[d];
        if (p.reduced >> d & 1)
          n += k * n_step, n_step *= p.sizes[d];
        else
          o += k * o_step, o_step *= p.sizes[d];
      }
      const auto u = static_cast<std::size_t>(o);
      const double x = static_cast<double>(static_cast<float>(in[at])) * (low ? -1 : 1);
      if (pass == 0) {
        const bool first = where[u] < 0;
        if (first || x > best[u] || (x != x && best[u] == best[u])) best[u] = x, where[u] = n;
        sum[u] += x, magnitude[u] += std::abs(x), total[u] += x;
        if (n == target[u]) logit[u] = x;
      } else if (p.kind == Kind::logsumexp || p.kind == Kind::cross_entropy) {
        if (i < 1 || n == 0) sum[u] = 0;
        sum[u] += std::exp(x - best[u]);
      }
    }
  const Buffer<Out> got = run<Op, Out>(plan, in, outputs, seed), again = run<Op, Out>(plan, in, outputs, seed + 1000);
  for (std::size_t u = 0; u < best.size(); ++u) {
    double expected = 0, allowed = 0;
    const double x = static_cast<double>(static_cast<float>(got[u])), rounding = sizeof(T) == 2 ? 0x1p-8 : 0x1p-22;
    switch (p.kind) {
      case Kind::sum: expected = sum[u], allowed = magnitude[u] * 0x1p-20 + std::abs(expected) * rounding; break;
      case Kind::mean:
        expected = sum[u] / double(length);
        allowed = (magnitude[u] / double(length)) * 0x1p-20 + std::abs(expected) * rounding;
        break;
      case Kind::logsumexp: expected = best[u] + std::log(sum[u]), allowed = 4e-6 + std::abs(expected) * rounding * 2; break;
      case Kind::cross_entropy: {
        const double log_sum = best[u] + std::log(sum[u]), mean = total[u] / double(length), s = p.loss.smoothing;
        expected = (1 - s) * (log_sum - logit[u]) + s * (log_sum - mean);
        allowed = 8e-6 + std::abs(expected) * rounding * 2;
        break;
      }
      case Kind::argmax:
      case Kind::argmin: expected = double(where[u]); break;
      default: expected = best[u] * (low ? -1 : 1);
    }
    const double value = index ? double(got[u]) : x;
    const bool right = value == expected || std::abs(value - expected) <= allowed || (value != value && expected != expected);
    if (!right)
      throw std::runtime_error(text_of(p, plan, dtype) + " seed " + std::to_string(seed) + ": output " + std::to_string(u) +
                               " is " + std::to_string(value) + " instead of " + std::to_string(expected));
  }
  if (std::memcmp(got.data(), again.data(), got.size() * sizeof(Out)) != 0)
    throw std::runtime_error(text_of(p, plan, dtype) + ": other bits on repeat");

  // With batch invariance rows of stride 1 have the same bits alone, and from another address.
  if (rank != 2 || p.reduced != 0b10 || p.strides[1] != 1 || p.sizes[0] == 1) return;
  const Plan many = plan_of(p, in, dtype, to, seed, true);
  Call one = p;
  one.sizes[0] = 1;
  const std::size_t shift = 1 + seed % 5;
  Buffer<T> moved(static_cast<std::size_t>(length) + shift);
  for (std::int64_t i = 0; i < length; ++i) moved[static_cast<std::size_t>(i) + shift] = in[i];
  const T* const other = moved.data() + shift;
  const Plan alone = plan_of(one, other, dtype, to, seed, true);
  const Buffer<Out> all = run<Op, Out>(many, in, outputs, seed), first = run<Op, Out>(alone, other, 1, seed);
  if (std::memcmp(all.data(), first.data(), sizeof(Out)) != 0)
    throw std::runtime_error(text_of(p, many, dtype) + ": other bits of a row alone: " + text_of(one, alone, dtype));
}

template <class T>
void check_kind(const Call& p, DType dtype, std::uint64_t seed) {
  switch (state_of(p.kind)) {
    case State::sum: return check<Sum<T>, T>(p, dtype, dtype, seed);
    case State::maximum: return check<Maximum<T>, T>(p, dtype, dtype, seed);
    case State::index: return check<MaximumIndex<T>, std::int64_t>(p, dtype, DType::i64, seed);
    case State::cross_entropy: return check<CrossEntropy<T>, T>(p, dtype, dtype, seed);
    default: return check<LogSumExp<T>, T>(p, dtype, dtype, seed);
  }
}

constexpr Kind kKinds[] = {Kind::sum,    Kind::mean,   Kind::amax,      Kind::amin,
                           Kind::argmax, Kind::argmin, Kind::logsumexp, Kind::cross_entropy};

void check_both(const Call& p, std::uint64_t seed) {
  if (seed % 2 == 0)
    check_kind<float>(p, DType::f32, seed);
  else
    check_kind<bf16>(p, DType::bf16, seed);
}

std::vector<std::int64_t> contiguous(const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0; step *= sizes[d]) strides[d] = step;
  return strides;
}

/// argmax reduces one dim, or all; cross_entropy one.
bool possible(Kind kind, std::uint64_t reduced, std::size_t rank) {
  if (kind == Kind::cross_entropy) return std::has_single_bit(reduced);
  const bool index = kind == Kind::argmax || kind == Kind::argmin;
  return reduced != 0 && (!index || std::has_single_bit(reduced) || reduced == (std::uint64_t{1} << rank) - 1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2;
  struct Given {
    std::vector<std::int64_t> sizes;
    std::uint64_t reduced;
  };
  // Shapes of each plan: folded runs (one tile, several), folded positions with an incomplete last one, both, rows of runs,
  // splits of columns, elements, copies, clusters, short columns, few rows beside many.
  const Given given[] = {{{260, 24, 22}, 0b101}, {{9, 6, 53}, 0b101},      {{30, 45, 100}, 0b101},   {{5, 6, 200, 2}, 0b1011},
                         {{66001, 2}, 0b01},     {{1003, 13}, 0b01},       {{3, 2111, 5}, 0b010},    {{201, 16, 3}, 0b101},
                         {{7, 2, 1000}, 0b101},  {{3, 5, 2, 701}, 0b1010}, {{3, 2, 5, 700}, 0b1010}, {{40, 300, 64}, 0b010},
                         {{2, 700, 130}, 0b010}, {{6, 3, 109, 1}, 0b1010}, {{1, 110, 78}, 0b001},    {{4, 1558}, 0b01},
                         {{30, 1, 7}, 0b010},    {{300, 7, 9}, 0b010},     {{2100, 1, 3}, 0b001},    {{12000, 2, 2}, 0b101},
                         {{2, 35001}, 0b10},     {{256, 520}, 0b10},       {{1, 66000}, 0b10},       {{3, 20, 1416}, 0b010},
                         {{2, 3, 2056}, 0b010},  {{33, 4104}, 0b01},       {{2, 9, 4110}, 0b010},    {{2, 65, 4104}, 0b010},
                         {{2, 150, 521}, 0b010}, {{3, 100, 2744}, 0b010},  {{2, 256, 520}, 0b010},   {{2, 20, 4108}, 0b010},
                         {{9, 2799}, 0b10},      {{9, 1605}, 0b10},        {{9, 5841}, 0b10},        {{9, 4096}, 0b10},
                         {{9, 1027}, 0b10}};
  return run_checks([&] {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      for (std::size_t i = 0; i < std::size(given); ++i)
        for (std::size_t k = seed % 2; k < std::size(kKinds); k += 2) {
          const Given& g = given[i];
          if (possible(kKinds[k], g.reduced, g.sizes.size()))
            check_both({kKinds[k], g.sizes, contiguous(g.sizes), g.reduced, static_cast<std::int64_t>((seed + i) % 5)}, seed + i);
        }
      std::mt19937 random(static_cast<unsigned>(seed));
      const auto below = [&](std::uint64_t n) { return static_cast<std::int64_t>(random() % n); };
      for (int i = 0; i < 40; ++i) {
        Call p{kKinds[below(std::size(kKinds))], {}, {}, 0, below(3)};
        const std::size_t rank = static_cast<std::size_t>(1 + below(4));
        std::int64_t left = 1 + below(20000);
        for (std::size_t d = 0; d < rank; ++d) {
          const std::int64_t size =
              below(4) == 0 ? 1 + below(4) : 1 + below(static_cast<std::uint64_t>(std::min<std::int64_t>(left, 700)));
          p.sizes.push_back(std::min(size, left));
          left = std::max<std::int64_t>(left / p.sizes.back(), 1);
        }
        std::shuffle(p.sizes.begin(), p.sizes.end(), random);
        p.strides = contiguous(p.sizes);
        if (below(3) == 0) {  // gaps, another order
          std::vector<std::size_t> order(rank);
          for (std::size_t d = 0; d < rank; ++d) order[d] = d;
          std::shuffle(order.begin(), order.end(), random);
          std::int64_t step = 1 + below(2);
          for (std::size_t d : order) p.strides[d] = step, step *= p.sizes[d] + below(2);
        }
        p.reduced = static_cast<std::uint64_t>(1 + below((1u << rank) - 1));
        if (!possible(p.kind, p.reduced, rank)) p.reduced = std::uint64_t{1} << below(rank);
        check_both(p, static_cast<std::uint64_t>(below(1000)));
      }
    }
    for (std::size_t i = 0; i < std::size(ran); ++i) require(ran[i] > 0, "test of plan " + std::to_string(i));
  });
}
