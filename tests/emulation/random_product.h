// For test programs: a random product with everything that a matmul::Problem can express, its operands in memory that ends at
// an inaccessible page, and its result in double.
#pragma once
#include <optional>

#include "check.h"
#include "matmul/plan/plan.h"
#include "matmul/problem.h"

/// A Hopper GPU, of which the plans see few SMs.
constexpr xgemm::DeviceProperties hopper(int sm_count) {
  return {.major = 9, .sm_count = sm_count, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
}

struct Random {
  std::uint64_t state;
  int operator()(int from, int to) {  // inclusive
    state = state * 6364136223846793005u + 1442695040888963407u;
    return from + static_cast<int>((state >> 33) % static_cast<std::uint64_t>(to - from + 1));
  }
  bool one_in(int count) { return (*this)(1, count) == 1; }
};

template <class T>
double number(T x) {
  if constexpr (std::is_same_v<T, double>)
    return x;
  else
    return static_cast<float>(x);
}
template <class T>
constexpr xgemm::DType dtype_of() {
  using xgemm::DType;
  return std::is_same_v<T, float>    ? DType::f32
         : std::is_same_v<T, double> ? DType::f64
         : std::is_same_v<T, __half> ? DType::f16
                                     : DType::bf16;
}

template <class T>
constexpr double ulp = sizeof(T) == 8              ? 0x1p-52
                       : sizeof(T) == 4            ? 0x1p-23
                       : std::is_same_v<T, __half> ? 0x1p-10
                                                   : 0x1p-7;

/// All NaN are equal: a CPU's have signs that a GPU's do not.
template <class Numbers>
void require_same_bits(const Numbers& got, const Numbers& first, const std::string& what) {
  for (std::size_t i = 0; i < std::min(got.size(), first.size()); ++i)
    require(std::memcmp(&got[i], &first[i], sizeof(got[i])) == 0 || (std::isnan(number(got[i])) && std::isnan(number(first[i]))),
            [&] { return text("same bits: ", what, " at ", i); });
}

/// Allowed sizes and strides.
struct Choices {
  bool any_strides = true;  ///< else contiguous along rows or columns
  bool few_batches = true;  ///< up to two batch dims
  int aligned_one_in = 2;   ///< strides and bases of whole 16 bytes
  bool integers = false;    ///< small ones, whose products and sums are exact
  bool gated = false;       ///< and without C, a residual and alpha
};

/// Matrices of a batch of up to two dims. The memory between their elements is NaN, and the last element ends at the page's end
/// or up to seven elements before it.
template <class T>
class RandomMatrices {
 public:
  RandomMatrices(Random& random, const Choices& choices, std::int64_t rows, std::int64_t columns, const std::int64_t (&batch)[4],
                 int broadcasts, std::uint64_t seed) {
    const bool aligned = random.one_in(choices.aligned_one_in);
    const int multiple = aligned ? 16 / static_cast<int>(sizeof(T)) : 1;
    const auto line = [&](std::int64_t size) {
      return (size + (random.one_in(2) ? 0 : random(1, 9)) + multiple - 1) / multiple * multiple;
    };
    const int kind = random(0, choices.any_strides ? 5 : 3);
    if (kind < 2)
      operand.row_stride = line(columns), operand.col_stride = 1;
    else if (kind < 4)
      operand.row_stride = 1, operand.col_stride = line(rows);
    else
      operand.row_stride = line(2 * columns), operand.col_stride = 2;
    if (random.one_in(broadcasts)) operand.row_stride = 0;
    if (random.one_in(2 * broadcasts)) operand.col_stride = 0;
    std::int64_t step = rows * operand.row_stride + columns * operand.col_stride;
    for (int d = 1; d >= 0; --d) {
      step = (step + multiple - 1) / multiple * multiple;
      operand.batch_stride[d] = random.one_in(3) ? 0 : step;
      if (operand.batch_stride[d]) step *= batch[d];
    }
    std::int64_t last = (rows - 1) * operand.row_stride + (columns - 1) * operand.col_stride;
    for (int d = 0; d < 2; ++d) last += (batch[d] - 1) * operand.batch_stride[d];
    const std::int64_t behind = random.one_in(2) ? 0 : random(0, 7), kRound = 128;
    values_.emplace((last + 1 + behind + 16 + kRound - 1) / kRound * kRound, static_cast<T>(NAN));
    first_ = static_cast<std::int64_t>(values_->size()) - 1 - last - behind;
    if (aligned && random.one_in(2)) first_ -= first_ % multiple;
    operand.data = values_->data() + first_;
    const Buffer<T> numbers = random_numbers<T>(last + 1, seed);
    for (std::int64_t i = 0; i < batch[0]; ++i)
      for (std::int64_t j = 0; j < batch[1]; ++j)
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < columns; ++c) {
            const std::int64_t at =
                i * operand.batch_stride[0] + j * operand.batch_stride[1] + r * operand.row_stride + c * operand.col_stride;
            (*values_)[first_ + at] = choices.integers ? static_cast<T>(std::round(8 * number(numbers[at]))) : numbers[at];
          }
  }
  T& at(std::int64_t i, std::int64_t j, std::int64_t r, std::int64_t c) const {
    return (*values_)[first_ + i * operand.batch_stride[0] + j * operand.batch_stride[1] + r * operand.row_stride +
                      c * operand.col_stride];
  }
  /// The first matrix, for the whole batch.
  xgemm::matmul::Operand& share() {
    for (auto& step : operand.batch_stride) step = 0;
    return operand;
  }
  xgemm::matmul::Operand operand;

 private:
  std::optional<Buffer<T>> values_;
  std::int64_t first_;
};

/// The activation in double, with NaN where torch's formulas give it (-inf).
inline double activated(double x, xgemm::matmul::Activation activation) {
  using enum xgemm::matmul::Activation;
  switch (activation) {
    case relu: return x > 0 || std::isnan(x) ? x : 0;
    case gelu: return 0.5 * x * (1 + std::erf(x * std::sqrt(0.5)));
    case gelu_tanh: return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
    case silu: return x / (1 + std::exp(-x));
    default: return x;
  }
}

/// A product and its operands. `out` has kBehind more elements, which must not change.
template <class T>
class RandomProduct {
 public:
  RandomProduct(Random& random, const Choices& choices, int m, int n, int k, std::uint64_t seed) : m_(m), n_(n), k_(k) {
    using namespace xgemm::matmul;
    problem.dtype = dtype_of<T>();
    problem.m = m, problem.n = n, problem.k = k;
    if (choices.few_batches && random.one_in(2)) {
      problem.batch_dims = random(1, 2);
      for (int d = 0; d < problem.batch_dims; ++d) problem.batch[d] = random(1, 3), problem.batches *= problem.batch[d];
    }
    const auto matrices = [&](int rows, int columns, int broadcasts, std::uint64_t more) {
      return RandomMatrices<T>(random, choices, rows, columns, problem.batch, broadcasts, seed + more);
    };
    a_.emplace(matrices(m, k, 16, 1)), b_.emplace(matrices(k, n, 16, 2));
    c_.emplace(matrices(m, n, 4, 3)), bias_.emplace(matrices(1, n, 4, 4)), residual_.emplace(matrices(m, n, 4, 5));
    if (random.one_in(3)) a_->at(0, 0, random(0, m - 1), random(0, k - 1)) = static_cast<T>(random.one_in(2) ? NAN : INFINITY);
    if (random.one_in(3)) b_->at(0, 0, random(0, k - 1), random(0, n - 1)) = static_cast<T>(random.one_in(2) ? NAN : -INFINITY);
    problem.a = a_->operand, problem.b = b_->operand;
    bias_->share().row_stride = 0;
    if (random.one_in(2)) problem.bias = bias_->operand;
    if (choices.gated) {
      up_.emplace(matrices(k, n, 16, 6)), bias_up_.emplace(matrices(1, n, 4, 7));
      problem.gated = true, problem.activation = static_cast<Activation>(random(0, 4));
      problem.b = b_->share(), problem.up = up_->share();
      bias_up_->share().row_stride = 0;
      if (random.one_in(2)) problem.bias_up = bias_up_->operand;
      return;
    }
    if (random.one_in(2)) problem.alpha = random.one_in(4) ? 0 : -0.75;
    if (random.one_in(2)) {
      if (random.one_in(2)) problem.c = c_->operand, problem.beta = 0.5;
      if (random.one_in(2)) problem.residual = residual_->operand;
      problem.activation = static_cast<Activation>(random(0, 4));
    }
  }

  std::string name() const {
    const auto& p = problem;
    return text(m_, "x", n_, "x", k_, " of ", p.batch[0], " by ", p.batch[1], ", A ", p.a.row_stride, " ", p.a.col_stride, ", B ",
                p.b.row_stride, " ", p.b.col_stride, has_plain_epilogue(p) ? "" : ", epilogue");
  }

  /// launch(problem) runs the product. `error`: relative to the sum of the terms' magnitudes; 0: none. `rounded`: an operand's
  /// element as the kernel multiplies it. Returns the results.
  template <class Launch>
  Buffer<T> check(const std::string& kernel, double error, const Launch& launch, double (*rounded)(T) = number<T>) const {
    constexpr std::size_t kBehind = 64;
    const std::size_t count = problem.batches * m_ * n_;
    Buffer<T> out(count + kBehind, static_cast<T>(INFINITY));
    auto p = problem;
    p.out = out.data();
    launch(p);
    const std::string what = kernel + " " + name();
    std::size_t at = 0;
    std::vector<double> rows(m_ * k_), columns(n_ * k_), up(p.gated ? n_ * k_ : 0);
    for (std::int64_t i = 0; i < p.batch[0]; ++i)
      for (std::int64_t j = 0; j < p.batch[1]; ++j) {
        for (std::int64_t k = 0; k < k_; ++k) {
          for (std::int64_t r = 0; r < m_; ++r) rows[r * k_ + k] = rounded(a_->at(i, j, r, k));
          for (std::int64_t c = 0; c < n_; ++c) columns[c * k_ + k] = rounded(b_->at(i, j, k, c));
          for (std::int64_t c = 0; p.gated && c < n_; ++c) up[c * k_ + k] = rounded(up_->at(i, j, k, c));
        }
        for (std::int64_t r = 0; r < m_; ++r)
          for (std::int64_t c = 0; c < n_; ++c, ++at) {
            const Dot product = dot(rows.data() + r * k_, columns.data() + c * k_, k_);
            const auto [y, allowed] = p.gated ? gated(product, dot(rows.data() + r * k_, up.data() + c * k_, k_), c, error)
                                              : with_epilogue(product, i, j, r, c, error);
            const double got = number(out[at]);
            const bool right = std::isnan(y) ? std::isnan(got) : std::isinf(y) ? got == y : std::abs(got - y) <= allowed;
            require(right, [&] { return text(what, " at ", at, ": ", got, " is not ", y); });
          }
      }
    for (std::size_t i = count; i < out.size(); ++i)
      require(std::isinf(number(out[i])), [&] { return what + " does not write past C"; });
    return out;
  }

  xgemm::matmul::Problem problem;

 private:
  struct Result {
    double value, allowed;
  };

  Result with_epilogue(const Dot& product, std::int64_t i, std::int64_t j, std::int64_t r, std::int64_t c, double error) const {
    const auto& p = problem;
    double y = 0, largest = 0;  // largest: of the rounded intermediate values
    const auto plus = [&](double x) { y += x, largest = std::max({largest, std::abs(x), std::abs(y)}); };
    plus(p.alpha * product.sum);
    if (p.c.data) plus(p.beta * number(c_->at(i, j, r, c)));
    if (p.bias.data) plus(number(bias_->at(0, 0, 0, c)));
    y = activated(y, p.activation);
    if (p.residual.data) plus(number(residual_->at(i, j, r, c)));
    if (error == 0 && p.activation == xgemm::matmul::Activation::none) return {y, 0};  // integers
    // 1.13: an activation's slope. An infinite magnitude times no error would be NaN.
    const double of_terms = error == 0 ? 0 : 1.13 * std::abs(p.alpha) * error * product.magnitude;
    return {y, of_terms + (sizeof(T) == 8 ? 0x1p-51 : 0x1p-22) * largest + ulp<T> * (std::abs(y) + 0.01)};
  }

  Result gated(Dot gate, Dot up, std::int64_t c, double error) const {
    if (problem.bias.data) gate.sum += number(bias_->at(0, 0, 0, c));
    if (problem.bias_up.data) up.sum += number(bias_up_->at(0, 0, 0, c));
    const double active = activated(gate.sum, problem.activation), y = active * up.sum,
                 gate_error = 1.2 * error * gate.magnitude + 0x1p-20 * (std::abs(gate.sum) + 1),
                 up_error = error * up.magnitude + 0x1p-20 * (std::abs(up.sum) + 1);
    return {y, gate_error * (std::abs(up.sum) + up_error) + up_error * std::abs(active) + ulp<T> * (std::abs(y) + 0.01)};
  }

  int m_, n_, k_;
  std::optional<RandomMatrices<T>> a_, b_, c_, bias_, residual_, up_, bias_up_;
};
