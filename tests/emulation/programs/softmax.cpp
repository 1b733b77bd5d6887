// softmax and log_softmax by the kernels whose copies are asynchronous (rows in shared memory, columns; of a CTA and of clusters)
// and by single elements against double: csrc/softmax's own plans and launches over rows with gaps and any base address. Every
// call runs twice with other orders of threads and must give the same bits; so must the same numbers at another address and,
// with batch invariance, a row alone.
#include <map>

#include "device/numeric.cuh"
#include "random_product.h"
#include "softmax/launch.h"

using namespace xgemm;
using namespace xgemm::softmax;

namespace {

struct Problem {
  std::int64_t outer, length, columns, gap;  ///< gap: elements between the outer rows
  bool log, early_gpu, batch_invariant;      ///< early_gpu: compute capability 8.0
  bool two_strides;                          ///< of the outer rows, in pairs: an element more between pairs
  std::int64_t row() const { return length * columns; }
  std::int64_t offset(std::int64_t o) const { return o * (row() + gap) + (two_strides ? o / 2 : 0); }
};

std::map<std::string, int> ran;

Plan plan_of(const Problem& p, const void* in, DType from, DType to) {
  DeviceProperties gpu = hopper(4);
  if (p.early_gpu) gpu.major = 8;
  const std::int64_t inner = p.two_strides ? 2 : 1, sizes[] = {p.outer / inner, inner, p.length, p.columns},
                     strides[] = {p.offset(inner), p.offset(1), p.columns, 1};
  return make_plan("test", p.log, {in, from, sizes, strides}, 2, to, gpu, p.batch_invariant);
}

/// The result of the numbers at an address `offset` elements after a multiple of 16 bytes.
template <class T, class O>
std::vector<O> run(const Problem& p, const Buffer<T>& numbers, std::int64_t offset, std::uint64_t seed) {
  constexpr std::size_t kMargin = 128;
  Buffer<T> placed(numbers.size() + offset);
  std::copy(numbers.data(), numbers.data() + numbers.size(), placed.data() + offset);
  const auto count = p.outer * p.row();
  Buffer<O> out(kMargin + count, static_cast<O>(7));
  const T* const in = placed.data() + offset;
  const Plan plan = plan_of(p, in, dtype_of<T>(), dtype_of<O>());
  emulation::launch_options() = {.seed = seed};
  const bool elements = plan.kernel == Kernel::elements, columns = plan.kernel == Kernel::columns;
  (elements ? launch_elements : columns ? launch_columns : launch_shared)(plan, in, out.data() + kMargin, nullptr);
  const std::string kind = elements  ? (plan.lanes * plan.beside > 32 ? "elements of warps" : "elements of a warp")
                           : columns ? "columns"
                                     : text("rows of ", plan.lanes);
  ++ran[kind + (plan.cluster > 1 ? " cluster" : "")];
  for (std::size_t i = 0; i < kMargin; ++i) require(number(out[i]) == 7, "write before the result");
  return {out.data() + kMargin, out.data() + kMargin + count};
}

template <class T, class O>
void check(const Problem& p, Random& random, std::uint64_t seed) {
  const Kernel kernel = plan_of(p, nullptr, dtype_of<T>(), dtype_of<O>()).kernel;
  if (kernel != Kernel::shared && kernel != Kernel::columns && kernel != Kernel::elements) return;
  const std::string what = text(p.log ? "log_" : "", "softmax of ", p.outer, "x", p.length, "x", p.columns, " gap ", p.gap,
                                " bytes ", sizeof(T), " ", sizeof(O), p.early_gpu ? " sm_80" : "", " seed ", seed);
  const auto place = [&](std::int64_t outer, std::int64_t n, std::int64_t column) {
    return p.offset(outer) + n * p.columns + column;
  };
  Buffer<T> numbers = random_numbers<T>(place(p.outer - 1, p.length - 1, p.columns - 1) + 1, seed);
  const bool special = random.one_in(2);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<T>(4 * number(numbers[i]));
    if (special && random.one_in(9)) numbers[i] = static_cast<T>(-INFINITY);
  }
  if (special)
    for (const double x : {double(INFINITY), double(NAN), 60000.})
      numbers[place(random(0, int(p.outer) - 1), random(0, int(p.length) - 1), random(0, int(p.columns) - 1))] =
          static_cast<T>(x);
  if (special && random.one_in(2))  // a row without a finite number
    for (std::int64_t n = 0; n < p.length; ++n) numbers[place(0, n, 0)] = static_cast<T>(-INFINITY);

  const std::int64_t offset = random(0, 7);
  const std::vector<O> got = run<T, O>(p, numbers, offset, seed);
  const double rounding = std::is_same_v<O, bf16> ? 0x1p-7
                          : sizeof(O) == 2        ? 0x1p-10
                          : sizeof(T) == 8        ? 1e-13
                                                  : 2e-6,
               least = p.log            ? (sizeof(T) == 8 ? 1e-14 : 2e-6)
                       : sizeof(O) == 2 ? 0x1p-24
                                        : 1e-37;
  for (std::int64_t outer = 0; outer < p.outer; ++outer)
    for (std::int64_t column = 0; column < p.columns; ++column) {
      const auto x = [&](std::int64_t n) { return number(numbers[place(outer, n, column)]); };
      double most = -INFINITY, sum = 0;
      bool nan = false;
      for (std::int64_t n = 0; n < p.length; ++n) most = std::max(most, x(n)), nan |= std::isnan(x(n));
      for (std::int64_t n = 0; n < p.length; ++n) sum += std::exp(x(n) - most);
      nan |= std::isinf(most);
      for (std::int64_t n = 0; n < p.length; ++n) {
        const double expected = p.log ? x(n) - most - std::log(sum) : std::exp(x(n) - most) / sum,
                     value = number(got[outer * p.row() + n * p.columns + column]);
        const bool right =
            nan ? std::isnan(value) : value == expected || std::abs(value - expected) <= std::abs(expected) * rounding + least;
        require(right, [&] { return text(what, ": ", value, " instead of ", expected); });
      }
    }
  require_same_bits(got, run<T, O>(p, numbers, offset, seed + 1000), what + ": equal bits on repeat");
  require_same_bits(got, run<T, O>(p, numbers, (offset + random(1, 7)) % 8, seed), what + ": equal bits at another address");
  if (p.columns > 1 || !p.batch_invariant) return;
  Problem one = p;
  one.outer = 1;
  require_same_bits(run<T, O>(p, numbers, offset, seed), run<T, O>(one, numbers, 0, seed), what + ": equal bits of a row alone");
}

}  // namespace

int main(int argc, char** argv) {
  // Rows of a warp, of a CTA, of clusters; columns of a CTA and of clusters; single elements of a thread, a warp and several.
  constexpr std::int64_t kShapes[][3] = {{1029, 301, 1}, {21, 301, 1}, {6, 1501, 1}, {2, 9001, 1},  {1, 33000, 1},
                                         {6, 17, 9},     {4, 130, 40}, {4, 530, 11}, {1, 6000, 70}, {3, 9000, 3},
                                         {6, 163, 9},    {54, 11, 5},  {2, 1300, 3}, {7, 3, 9},     {300, 1, 1}};
  std::uint64_t seeds = 0;
  const int status = run_seeds(argc, argv, [&](std::uint64_t seed) {
    Random random{seed * 7919 + 1};
    const auto any = [&](const std::int64_t(&sizes)[3]) {
      const bool pairs = sizes[0] % 2 == 0 && sizes[0] > 2 && random.one_in(2);
      const Problem p{sizes[0],
                      sizes[1],
                      sizes[2],
                      random.one_in(2) ? 0 : random(1, 9),
                      random.one_in(2),
                      random.one_in(4),
                      !pairs && random.one_in(2),
                      pairs};
      switch (random(0, 4)) {
        case 0: return check<float, float>(p, random, seed);
        case 1: return check<bf16, bf16>(p, random, seed);
        case 2: return check<half, half>(p, random, seed);
        case 3: return check<double, double>(p, random, seed);
        default: return check<bf16, float>(p, random, seed);
      }
    };
    for (std::size_t i = seed % 3; i < std::size(kShapes); i += 3) any(kShapes[i]);
    for (int i = 0; i < 6; ++i) {
      const bool rows = random.one_in(2);
      any({random(1, 6), rows ? random(200, 3000) : random(9, 400), rows ? 1 : random(2, 60)});
    }
    ++seeds;
  });
  if (status != 0 || seeds < 12) return status;
  return ran.size() >= 7 ? 0 : (std::printf("only %zu kinds of kernels ran\n", ran.size()), 1);
}
