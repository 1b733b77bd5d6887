// topk_softmax against double: csrc/topk_softmax's own plans and launches over random shapes, strides, base addresses and k,
// with ties, infinities and NaN. Indices must be exact. Every call runs twice with other orders of threads and must give the same
// bits; so must the first outer row alone.
#include <numeric>
#include <random>

#include "check.h"
#include "device/numeric.cuh"
#include "topk_softmax/launch.h"

using namespace xgemm;
using namespace xgemm::topk_softmax;

namespace {

using Sizes = std::vector<std::int64_t>;

struct Problem {
  Sizes sizes, strides;
  std::size_t dim;
  std::int64_t k;
  bool renormalize;
};

template <class T>
constexpr DType kDTypeOf = std::is_same_v<T, float>    ? DType::f32
                           : std::is_same_v<T, double> ? DType::f64
                           : std::is_same_v<T, half>   ? DType::f16
                                                       : DType::bf16;

template <class T>
double value_of(T x) {
  if constexpr (sizeof(T) == 2)
    return static_cast<double>(static_cast<float>(x));
  else
    return static_cast<double>(x);
}

int ran[4];  // rounds of 8 and 16 values, select by a warp and by a CTA: all must have been tested

template <class O>
struct Result {
  std::vector<O> values;
  std::vector<std::int64_t> indices;
};

template <class T, class O>
Result<O> run(const Problem& p, const T* in, std::uint64_t seed, std::string* text = nullptr) {
  const Plan plan = make_plan("test", {in, kDTypeOf<T>, p.sizes, p.strides}, static_cast<std::int64_t>(p.dim),
                              static_cast<int>(p.k), p.renormalize, kDTypeOf<O>);
  if (text) {
    *text = "kernel " + std::to_string(static_cast<int>(plan.kernel)) + " lanes " + std::to_string(plan.lanes);
    ++ran[plan.kernel == Kernel::rounds ? plan.values / 16 : plan.lanes == 32 ? 2 : 3];
  }
  std::size_t count = 1;
  for (std::size_t d = 0; d < p.sizes.size(); ++d) count *= static_cast<std::size_t>(d == p.dim ? p.k : p.sizes[d]);
  Buffer<O> values(count);
  Buffer<std::int64_t> indices(count, -7);
  emulation::launch_options() = {.seed = seed};
  launch(plan, in, values.data(), indices.data(), nullptr);
  return {{values.data(), values.data() + count}, {indices.data(), indices.data() + count}};
}

/// All NaN are equal: a CPU's have signs that a GPU's do not.
template <class O>
bool same(const Result<O>& a, const Result<O>& b) {
  for (std::size_t i = 0; i < std::min(a.values.size(), b.values.size()); ++i) {
    const double x = value_of(a.values[i]), y = value_of(b.values[i]);
    if (a.indices[i] != b.indices[i] || (std::memcmp(&a.values[i], &b.values[i], sizeof(O)) != 0 && (x == x || y == y)))
      return false;
  }
  return true;
}

template <class T, class O>
void check(const Problem& p, std::int64_t offset, std::uint64_t seed) {
  std::mt19937 random(static_cast<unsigned>(seed));
  const std::int64_t length = p.sizes[p.dim];
  std::int64_t extent = 1, inner = 1, rows = 1;
  for (std::size_t d = 0; d < p.sizes.size(); ++d) {
    extent += (p.sizes[d] - 1) * p.strides[d];
    if (d != p.dim) rows *= p.sizes[d];
    if (d > p.dim) inner *= p.sizes[d];
  }
  Buffer<T> memory = random_numbers<T>(static_cast<std::size_t>(extent + offset), seed);
  const auto kind = seed % 6;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    float x = static_cast<float>(memory[i]) * 4;
    if (kind == 1 || kind == 2) x = std::round(x);      // ties, both zeros
    if (kind == 2 && random() % 5 != 0) x = -INFINITY;  // rows of little else
    if (kind == 3 && random() % 200 == 0) x = random() % 2 ? NAN : INFINITY;
    if (kind == 4) x = static_cast<float>(i % 4096) / 16;  // ascending: the most insertions
    if (kind == 5 && random() % 3 == 0) x = 12.5f;         // ties at the threshold
    memory[i] = static_cast<T>(x);
  }
  const T* const in = memory.data() + offset;
  std::string plan;
  const Result<O> got = run<T, O>(p, in, seed, &plan);
  std::string what = "k " + std::to_string(p.k) + (p.renormalize ? " renormalized" : "") + " sizes";
  for (std::size_t d = 0; d < p.sizes.size(); ++d) what += " " + std::to_string(p.sizes[d]) + ":" + std::to_string(p.strides[d]);
  what += " dim " + std::to_string(p.dim) + " offset " + std::to_string(offset) + " dtypes " +
          std::to_string(static_cast<int>(kDTypeOf<T>)) + " " + std::to_string(static_cast<int>(kDTypeOf<O>)) + " seed " +
          std::to_string(seed) + " " + plan;

  const double rounding = sizeof(O) == 8 ? 1e-13 : sizeof(O) == 4 ? 2e-6 : std::is_same_v<O, half> ? 0x1p-10 : 0x1p-7;
  std::vector<double> x(static_cast<std::size_t>(length));
  std::vector<std::int64_t> order(x.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t at = 0;
    for (std::size_t d = p.sizes.size(), rest = static_cast<std::size_t>(row); d-- > 0;) {
      if (d == p.dim) continue;
      at += static_cast<std::int64_t>(rest) % p.sizes[d] * p.strides[d];
      rest /= static_cast<std::size_t>(p.sizes[d]);
    }
    for (std::int64_t n = 0; n < length; ++n) x[static_cast<std::size_t>(n)] = value_of(in[at + n * p.strides[p.dim]]);
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + p.k, order.end(), [&](std::int64_t a, std::int64_t b) {
      const double u = x[static_cast<std::size_t>(a)], v = x[static_cast<std::size_t>(b)];
      if (u != u || v != v) return (u != u) != (v != v) ? u != u : a < b;
      return u != v ? u > v : a < b;
    });
    const double most = x[static_cast<std::size_t>(order[0])];
    long double sum = 0;
    for (std::int64_t n = 0; n < (p.renormalize ? p.k : length); ++n)
      sum += std::exp(x[static_cast<std::size_t>(p.renormalize ? order[static_cast<std::size_t>(n)] : n)] - most);
    for (std::int64_t j = 0; j < p.k; ++j) {
      const auto to = static_cast<std::size_t>((row / inner * p.k + j) * inner + row % inner);
      const double value = value_of(got.values[to]),
                   expected = std::exp(x[static_cast<std::size_t>(order[static_cast<std::size_t>(j)])] - most) /
                              static_cast<double>(sum);
      const bool right = std::abs(value - expected) <= std::abs(expected) * rounding + (sizeof(O) == 2 ? 0x1p-24 : 1e-37) ||
                         (value != value && expected != expected);
      if (got.indices[to] != order[static_cast<std::size_t>(j)] || !right)
        throw std::runtime_error(what + ": row " + std::to_string(row) + " result " + std::to_string(j) + " is " +
                                 std::to_string(value) + " of " + std::to_string(got.indices[to]) + " instead of " +
                                 std::to_string(expected) + " of " + std::to_string(order[static_cast<std::size_t>(j)]));
    }
  }
  if (!same(got, run<T, O>(p, in, seed + 1000))) throw std::runtime_error(what + ": other bits on repeat");
  if (p.dim == 0 || p.sizes[0] == 1) return;
  Problem one = p;
  one.sizes[0] = 1;
  if (!same(got, run<T, O>(one, in, seed))) throw std::runtime_error(what + ": other bits of a row alone");
}

void check_dtypes(const Problem& p, std::int64_t offset, std::uint64_t seed, unsigned dtypes) {
  switch (dtypes % 6) {
    case 0: return check<float, float>(p, offset, seed);
    case 1: return check<bf16, bf16>(p, offset, seed);
    case 2: return check<half, half>(p, offset, seed);
    case 3: return check<double, double>(p, offset, seed);
    case 4: return check<bf16, float>(p, offset, seed);
    default: return check<half, float>(p, offset, seed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2;
  return run_checks([&] {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      std::mt19937 random(static_cast<unsigned>(seed));
      const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
      for (int i = 0; i < 16; ++i) {
        // Short rows; rows of a warp; rows of a CTA of two to eight warps.
        const std::int64_t longest[] = {32, 128, 3000, 12000}, kind = below(4);
        Problem p{.sizes = {}, .strides = {}, .dim = static_cast<std::size_t>(below(3)), .k = 0, .renormalize = below(2) == 0};
        for (std::size_t d = 0; d < 3; ++d)
          p.sizes.push_back(d == p.dim ? 1 + below(longest[kind]) : 1 + below(kind < 2 ? 6 : 3));
        const std::int64_t length = p.sizes[p.dim];
        p.k = 1 + below(std::min(length, below(3) == 0 ? kMaxK : 8));
        p.strides.resize(3);
        std::size_t order[] = {0, 1, 2};
        if (below(3) == 0) std::shuffle(order, order + 3, random);
        if (below(2) == 0) std::swap(order[p.dim], order[2]);  // the row is the fastest dim
        std::int64_t step = below(4) == 0 ? 2 : 1;
        for (std::size_t d = 3; d-- > 0; step *= below(3) == 0 ? 8 : 1)
          p.strides[order[d]] = step, step = step * p.sizes[order[d]] + below(2) * below(3);
        if (p.dim != 0 && below(8) == 0) p.strides[0] = 0;  // expanded
        check_dtypes(p, below(8), static_cast<std::uint64_t>(below(1000)), random());
      }
    }
    for (int n : ran) require(n > 0, "test of one of the kernels");
  });
}
