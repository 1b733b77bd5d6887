// softmax, log_softmax and scaled_masked_softmax against double: csrc/softmax's own plans and launches over random shapes,
// strides, base addresses and masks. Every call runs twice with other orders of threads and must give the same bits; so must the
// same numbers at another address, and with batch invariance the first outer rows alone.
#include <optional>
#include <random>

#include "check.h"
#include "device/numeric.cuh"
#include "reduce/launch.h"
#include "softmax/launch.h"

using namespace xgemm;
using namespace xgemm::softmax;

extern "C" cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaSuccess; }

namespace xgemm::reduce {
// Two passes reduce by logsumexp only.
#define XGEMM_ABSENT(name)                                                                                        \
  void launch_##name##_rows(const RowPlan&, const void*, void*, const Workspace&, cudaStream_t) { std::abort(); } \
  void launch_##name##_columns(const Plan&, const void*, void*, const Workspace&, cudaStream_t) { std::abort(); }
XGEMM_ABSENT(sum)
XGEMM_ABSENT(maximum)
XGEMM_ABSENT(index)
XGEMM_ABSENT(cross_entropy)
void launch_mean_loss(const RowPlan&, const void*, void*, const Workspace&, cudaStream_t) { std::abort(); }
void launch_copy(const CopyPlan&, const void*, void*, cudaStream_t) { std::abort(); }
}  // namespace xgemm::reduce

namespace {

using Sizes = std::vector<std::int64_t>;
using Random = std::mt19937;

struct Problem {
  Sizes sizes, strides;
  std::size_t dim;
  bool log = false;
  bool early_gpu = false;  ///< compute capability 8.0
  bool batch_invariant = false;
  std::optional<MaskKind> mask{};  ///< scaled_masked_softmax
  Sizes mask_strides{};            ///< 0 if the mask is broadcast
  double scale = 1;
};

template <class T>
constexpr DType kDTypeOf = std::is_same_v<T, float>    ? DType::f32
                           : std::is_same_v<T, double> ? DType::f64
                           : std::is_same_v<T, half>   ? DType::f16
                                                       : DType::bf16;

std::int64_t extent_of(const Sizes& sizes, const Sizes& strides) {
  std::int64_t extent = 1;
  for (std::size_t d = 0; d < sizes.size(); ++d) extent += (sizes[d] - 1) * strides[d];
  return extent;
}

std::int64_t product(const Sizes& sizes, std::size_t from, std::size_t to) {
  std::int64_t n = 1;
  for (std::size_t d = from; d < to; ++d) n *= sizes[d];
  return n;
}

/// The offset of logical element i.
std::int64_t offset_of(const Sizes& sizes, const Sizes& strides, std::int64_t i) {
  std::int64_t at = 0;
  for (std::size_t d = sizes.size(); d-- > 0; i /= sizes[d]) at += i % sizes[d] * strides[d];
  return at;
}

std::string text_of(const Problem& p, const std::string& more) {
  std::string text = (p.mask ? "masked" : p.log ? "log_softmax" : "softmax") + std::string(" sizes");
  for (std::size_t d = 0; d < p.sizes.size(); ++d) text += " " + std::to_string(p.sizes[d]) + ":" + std::to_string(p.strides[d]);
  if (p.mask) {
    text += " mask " + std::to_string(static_cast<int>(*p.mask));
    for (std::int64_t s : p.mask_strides) text += " " + std::to_string(s);
  }
  return text + " dim " + std::to_string(p.dim) + (p.early_gpu ? " sm_80 " : " ") + more;
}

int ran[8], ran_masked[3];  // of each kernel: all must have been tested

/// A copy of `numbers` whose first element is `offset` elements after a multiple of 128 bytes.
template <class T>
struct Placed {
  Buffer<T> memory;
  const T* first;
  Placed(const Buffer<T>& numbers, std::int64_t offset)
      : memory(numbers.size() + static_cast<std::size_t>(offset)), first(memory.data() + offset) {
    for (std::size_t i = 0; i < numbers.size(); ++i) memory[static_cast<std::size_t>(offset) + i] = numbers[i];
  }
};

constexpr std::int64_t kMargin = 128;

/// The bytes of the result.
template <class T, class O>
std::vector<O> run(const Problem& p, const T* in, const void* mask, std::uint64_t seed, std::string* text = nullptr) {
  const DeviceProperties gpu{
      .major = p.early_gpu ? 8 : 9, .sm_count = 4, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
  const auto count = static_cast<std::size_t>(product(p.sizes, 0, p.sizes.size()));
  Buffer<O> memory(count + kMargin);
  std::memset(static_cast<void*>(memory.data()), 0x5a, memory.size() * sizeof(O));
  O* const out = memory.data() + kMargin;
  emulation::launch_options() = {.seed = seed};
  if (p.mask) {
    const Masked plan = make_masked("test", kDTypeOf<T>, *p.mask, p.scale, p.sizes, p.strides, p.mask_strides,
                                    static_cast<std::int64_t>(p.dim), p.batch_invariant);
    if (text) *text = "kernel " + std::to_string(static_cast<int>(plan.kernel)) + " lanes " + std::to_string(plan.lanes);
    if (text) ++ran_masked[static_cast<int>(plan.kernel)];
    if constexpr (std::is_same_v<T, O>) launch_masked(plan, in, mask, out, nullptr);
  } else {
    const reduce::Source source{in, kDTypeOf<T>, p.sizes, p.strides};
    const Plan plan = make_plan("test", p.log, source, static_cast<std::int64_t>(p.dim), kDTypeOf<O>, gpu, p.batch_invariant);
    if (text)
      *text = "kernel " + std::to_string(static_cast<int>(plan.kernel)) + " lanes " + std::to_string(plan.lanes) + " cluster " +
              std::to_string(plan.cluster) + " steps " + std::to_string(plan.steps);
    if (text) ++ran[static_cast<int>(plan.kernel)];
    Buffer<unsigned char> workspace(plan.workspace_bytes, 0x77);
    launch(plan, in, out, workspace.data(), nullptr);
  }
  for (std::int64_t i = 0; i < kMargin; ++i) {
    unsigned char bytes[sizeof(O)];
    std::memcpy(bytes, &memory[static_cast<std::size_t>(i)], sizeof(O));
    require(std::all_of(bytes, bytes + sizeof(O), [](unsigned char b) { return b == 0x5a; }),
            "untouched memory before the result");
  }
  return {out, out + count};
}

/// All NaN are equal: a CPU's have signs that a GPU's do not.
template <class O>
bool same_bits(const std::vector<O>& a, const std::vector<O>& b) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double x = static_cast<float>(a[i]), y = static_cast<float>(b[i]);
    if (std::memcmp(&a[i], &b[i], sizeof(O)) != 0 && (x == x || y == y)) return false;
  }
  return true;
}

/// Numbers of about +-4; some rows of larger ones, and with infinities and NaN.
template <class T>
void fill(Buffer<T>& numbers, const Problem& p, std::uint64_t seed, Random& random) {
  const std::int64_t length = p.sizes[p.dim], inner = product(p.sizes, p.dim + 1, p.sizes.size()),
                     count = product(p.sizes, 0, p.sizes.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<T>(static_cast<float>(numbers[i]) * 4);
  if (seed % 3 == 0) return;
  for (std::int64_t row = 0; row < std::min<std::int64_t>(count / length, 64); ++row) {
    const std::int64_t first = row / inner * inner * length + row % inner;
    const auto at = [&](std::int64_t n) -> T& {
      return numbers[static_cast<std::size_t>(offset_of(p.sizes, p.strides, first + n * inner))];
    };
    const std::int64_t where = static_cast<std::int64_t>(random() % static_cast<unsigned>(length));
    switch (random() % 12) {
      case 0:
        for (std::int64_t n = 0; n < length; ++n) at(n) = static_cast<T>(-INFINITY);
        break;
      case 1:
        for (std::int64_t n = 0; n < length; ++n)
          if (n != where) at(n) = static_cast<T>(-INFINITY);
        break;
      case 2: at(where) = static_cast<T>(INFINITY); break;
      case 3: at(where) = static_cast<T>(NAN); break;
      case 4: at(where) = static_cast<T>(60000.0f); break;
      case 5:
        for (std::int64_t n = 0; n < length; ++n) at(n) = static_cast<T>(static_cast<float>(at(n)) - 30000.0f);
        break;
      default: break;
    }
  }
}

template <class T, class O>
void check(const Problem& p, std::int64_t offset, std::uint64_t seed) {
  Random random(static_cast<unsigned>(seed));
  const std::int64_t length = p.sizes[p.dim], inner = product(p.sizes, p.dim + 1, p.sizes.size()),
                     count = product(p.sizes, 0, p.sizes.size()), outer = count / length / inner;
  Buffer<T> numbers = random_numbers<T>(static_cast<std::size_t>(extent_of(p.sizes, p.strides)), seed);
  fill(numbers, p, seed, random);
  const Placed<T> in(numbers, offset);

  // The mask, of any of its three types, and its values.
  const std::size_t mask_count = p.mask ? static_cast<std::size_t>(extent_of(p.sizes, p.mask_strides)) : 1;
  Buffer<T> own = random_numbers<T>(mask_count, seed + 1);
  Buffer<float> wide = random_numbers<float>(mask_count, seed + 1);
  Buffer<bool> boolean(mask_count);
  for (std::size_t i = 0; i < mask_count; ++i) {
    boolean[i] = random() % 4 != 0;
    if (random() % 4 == 0) own[i] = static_cast<T>(-INFINITY), wide[i] = -INFINITY;
  }
  const void* mask = nullptr;
  if (p.mask && *p.mask != MaskKind::none)
    mask = *p.mask == MaskKind::own   ? static_cast<const void*>(own.data())
           : *p.mask == MaskKind::f32 ? static_cast<const void*>(wide.data())
                                      : static_cast<const void*>(boolean.data());

  std::string plan;
  const std::vector<O> got = run<T, O>(p, in.first, mask, seed, &plan);
  const std::string what =
      text_of(p, plan + " offset " + std::to_string(offset) + " dtypes " + std::to_string(static_cast<int>(kDTypeOf<T>)) + " " +
                     std::to_string(static_cast<int>(kDTypeOf<O>)) + " seed " + std::to_string(seed));
  const double rounding = sizeof(O) == 8            ? 1e-13
                          : sizeof(T) == 4          ? 1e-6
                          : sizeof(O) == 4          ? 2e-6
                          : std::is_same_v<O, half> ? 0x1p-10
                                                    : 0x1p-7;
  std::vector<double> z(static_cast<std::size_t>(length));
  for (std::int64_t row = 0; row < outer * inner; ++row) {
    const std::int64_t first = row / inner * inner * length + row % inner;
    double most = -INFINITY, sum = 0, size = 0;
    bool nan = false;
    for (std::int64_t n = 0; n < length; ++n) {
      const std::int64_t i = first + n * inner;
      double& x = z[static_cast<std::size_t>(n)];
      const T raw = numbers[static_cast<std::size_t>(offset_of(p.sizes, p.strides, i))];
      if constexpr (sizeof(T) == 2)
        x = static_cast<double>(static_cast<float>(raw));
      else
        x = static_cast<double>(raw);
      if (p.mask) {
        const auto m = static_cast<std::size_t>(offset_of(p.sizes, p.mask_strides, i));
        x *= p.scale;
        if (*p.mask == MaskKind::own) x += static_cast<double>(own[m]);
        if (*p.mask == MaskKind::f32) x += static_cast<double>(wide[m]);
        if (*p.mask == MaskKind::boolean && !boolean[m]) x = -INFINITY;
      }
      nan |= x != x;
      most = std::max(most, x);
      if (std::isfinite(x)) size = std::max(size, std::abs(x));
    }
    for (std::int64_t n = 0; n < length; ++n) sum += std::exp(z[static_cast<std::size_t>(n)] - most);
    nan |= std::isinf(most);
    // A masked logit is rounded before the maximum is subtracted.
    const double logit_error = p.mask && sizeof(T) < 8 ? size * 0x1p-22 : p.mask ? size * 0x1p-50 : 0;
    for (std::int64_t n = 0; n < length; ++n) {
      const double x = z[static_cast<std::size_t>(n)];
      double expected = p.log ? x - most - std::log(sum) : std::exp(x - most) / sum;
      double allowed = std::abs(expected) * (rounding + logit_error) + (p.log            ? (sizeof(T) == 8 ? 1e-14 : 2e-6)
                                                                        : sizeof(O) == 2 ? 0x1p-24
                                                                                         : 1e-37);
      if (nan) expected = NAN;
      const O raw = got[static_cast<std::size_t>(first + n * inner)];
      double value;
      if constexpr (sizeof(O) == 2)
        value = static_cast<double>(static_cast<float>(raw));
      else
        value = static_cast<double>(raw);
      const bool right = value == expected || std::abs(value - expected) <= allowed || (value != value && expected != expected);
      if (!right)
        throw std::runtime_error(what + ": row " + std::to_string(row) + " element " + std::to_string(n) + " is " +
                                 std::to_string(value) + " instead of " + std::to_string(expected));
    }
  }

  if (!same_bits(got, run<T, O>(p, in.first, mask, seed + 1000))) throw std::runtime_error(what + ": other bits on repeat");
  const std::int64_t other = (offset + 1 + static_cast<std::int64_t>(random() % 7)) % 8;
  const Placed<T> moved(numbers, other);
  if (!same_bits(got, run<T, O>(p, moved.first, mask, seed)))
    throw std::runtime_error(what + ": other bits at offset " + std::to_string(other));
  // With batch invariance the first rows have the same bits alone, and from another address.
  const bool rows = p.mask
                        ? p.dim + 1 == p.sizes.size()
                        : has_dense_rows("test", {in.first, kDTypeOf<T>, p.sizes, p.strides}, static_cast<std::int64_t>(p.dim));
  if (!rows || p.dim == 0 || p.sizes[0] == 1) return;
  Problem all = p;
  all.batch_invariant = true;
  Problem one = all;
  one.sizes[0] = 1;
  if (!same_bits(run<T, O>(all, in.first, mask, seed), run<T, O>(one, moved.first, mask, seed)))
    throw std::runtime_error(what + ": other bits of a row alone");
}

void check_dtypes(const Problem& p, std::int64_t offset, std::uint64_t seed, unsigned dtypes) {
  switch (dtypes % 6) {
    case 0: return check<float, float>(p, offset, seed);
    case 1: return check<bf16, bf16>(p, offset, seed);
    case 2: return check<half, half>(p, offset, seed);
    case 3: return check<double, double>(p, offset, seed);
    case 4:
      if (!p.mask) return check<bf16, float>(p, offset, seed);
      return check<float, float>(p, offset, seed);
    default:
      if (!p.mask) return check<half, float>(p, offset, seed);
      return check<half, half>(p, offset, seed);
  }
}

Sizes contiguous(const Sizes& sizes) {
  Sizes strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0; step *= sizes[d]) strides[d] = step;
  return strides;
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t seeds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 2;
  struct Given {
    Sizes sizes;
    std::size_t dim;
    bool early_gpu;
    std::int64_t gap = 0;  ///< between outermost rows
  };
  // Short rows, rows of a warp and of a CTA, tiny rows, odd rows, rows in shared memory of a warp, a team, a CTA and clusters;
  // columns in a few lanes, a CTA, a cluster; two passes over rows and columns; single elements.
  const Given given[] = {
      {{37, 64}, 1, false},      {{9, 512}, 1, false},       {{3, 3000}, 1, true},       {{29, 77}, 1, false},
      {{21, 301}, 1, false},     {{6, 1501}, 1, false},      {{2, 9001}, 1, false},      {{2, 20011}, 1, false},
      {{1, 33000}, 1, false},    {{5, 17, 9}, 1, false},     {{2, 130, 40}, 1, false},   {{2, 530, 11}, 1, false},
      {{1, 1100, 70}, 1, false}, {{2, 33001}, 1, true},      {{2, 2050, 9}, 1, true},    {{2, 300, 16}, 1, true},
      {{700, 1}, 1, false},      {{18, 5, 46, 3}, 1, false}, {{3, 7, 64}, 1, false},     {{1, 8, 101}, 1, true},
      {{600, 7, 64}, 1, false},  {{4, 1, 333}, 1, false},    {{3, 9000, 3}, 1, false},   {{91, 15}, 1, false},
      {{1029, 3}, 1, false},     {{3, 7, 23}, 2, false, 5},  {{2, 5, 31}, 2, false, 1},  {{2, 7, 77}, 2, false, 3},
      {{3, 5, 79}, 2, false, 8}, {{2, 9, 153}, 2, false, 1}, {{2, 6, 159}, 2, false, 7}, {{2, 5, 177}, 2, false, 1},
      {{2, 3, 313}, 2, true, 5}, {{1025, 323}, 1, false}};
  return run_checks([&] {
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      Random random(static_cast<unsigned>(seed));
      const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n)); };
      for (std::size_t i = 0; i < std::size(given); ++i) {
        if ((i + seed) % 3 != 0) continue;
        const Given& g = given[i];
        Sizes strides = contiguous(g.sizes);
        strides[0] += g.gap;
        check_dtypes({.sizes = g.sizes, .strides = strides, .dim = g.dim, .log = below(2) == 0, .early_gpu = g.early_gpu},
                     below(2) * below(8), seed + i, random());
      }
      for (int i = 0; i < 24; ++i) {
        Problem p{.sizes = {}, .strides = {}, .dim = 0, .log = below(2) == 0, .early_gpu = below(3) == 0};
        const bool masked = below(3) == 0;
        const std::int64_t rank = 1 + below(3);
        std::int64_t left = 1 + below(6000);
        for (std::int64_t d = 0; d < rank; ++d) {
          p.sizes.push_back(1 + below(std::min<std::int64_t>(left, below(3) == 0 ? 6 : 2500)));
          left = std::max<std::int64_t>(left / p.sizes.back(), 1);
        }
        std::shuffle(p.sizes.begin(), p.sizes.end(), random);
        p.dim = static_cast<std::size_t>(below(rank));
        p.strides = contiguous(p.sizes);
        if (below(2) == 0) {  // gaps between positions and outer rows; masked: any strides
          const std::size_t last = p.dim + 1 < p.sizes.size() || masked ? p.dim : p.dim - 1;
          std::int64_t step = p.dim + 1 < p.sizes.size() ? product(p.sizes, p.dim + 1, p.sizes.size()) : 1;
          for (std::size_t d = p.dim + 1; d-- > 0;) {
            if (d <= last && last < p.sizes.size()) step += below(4) * (below(2) == 0 ? 8 : 1);
            p.strides[d] = step;
            step *= p.sizes[d];
          }
          if (p.dim > 0 && below(6) == 0) p.strides[0] = 0;  // expanded
        }
        if (masked) {
          p.log = false;
          p.mask = static_cast<MaskKind>(below(4));
          p.mask_strides = contiguous(p.sizes);
          for (std::int64_t& s : p.mask_strides)
            if (below(3) == 0 || *p.mask == MaskKind::none) s = 0;
          p.scale = below(2) == 0 ? 1 : 0.37;
        } else if (!reads_directly({nullptr, DType::f32, p.sizes, p.strides}, static_cast<std::int64_t>(p.dim))) {
          continue;
        }
        check_dtypes(p, below(2) * below(8), static_cast<std::uint64_t>(below(1000)), random());
      }
    }
    for (int n : ran) require(n > 0, "test of one of the kernels");
    for (int n : ran_masked) require(n > 0, "test of one of the masked kernels");
  });
}
