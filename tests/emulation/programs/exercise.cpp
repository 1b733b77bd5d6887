// One of the lab's exercises (torch_ext/lab/exercises), linked to this program, against double on ragged sizes. The program's
// argument is its kind: 0 SGEMM, 1 reduction, 2 softmax, 3 attention; 4 the kernel of the experiment on spilling.
#include <cuda_bf16.h>

#include <array>

#include "check.h"

extern "C" void exercise();  // with the arguments of its kind

namespace {

template <class F>
F* as() {
  return reinterpret_cast<F*>(&exercise);
}

void sgemm() {
  for (const auto& [m, n, k] : {std::array<std::size_t, 3>{1, 1, 1}, {1, 37, 5}, {33, 65, 20}, {70, 32, 36}}) {
    const Buffer<float> a = random_numbers<float>(m * k, 1), b = random_numbers<float>(k * n, 2);
    Buffer<float> c(m * n, NAN);
    as<void(const float*, const float*, float*, int, int, int, cudaStream_t)>()(
        a.data(), b.data(), c.data(), static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), nullptr);
    std::vector<double> expected(m * n), allowed(m * n, 1e-5);
    for (std::size_t i = 0; i < m * n; ++i)
      for (std::size_t j = 0; j < k; ++j)
        expected[i] += static_cast<double>(a[i / n * k + j]) * static_cast<double>(b[j * n + i % n]);
    require_close(c, expected, allowed, "product");
  }
}

void reduction() {
  for (const std::size_t n : {1, 31, 257, 513, 5003}) {
    const Buffer<float> x = random_numbers<float>(n, n);
    Buffer<float> partials(1 << 20, NAN);
    const int count =
        as<int(const float*, float*, long long, cudaStream_t)>()(x.data(), partials.data(), static_cast<long long>(n), nullptr);
    double sum = 0, expected = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) sum += partials[i];
    for (std::size_t i = 0; i < n; ++i) expected += x[i];
    require(std::abs(sum - expected) < 1e-3, "sum of " + std::to_string(n));
  }
}

void softmax() {
  for (const std::size_t cols : {1, 5, 256, 300, 700}) {
    const std::size_t rows = 3;
    const Buffer<float> x = random_numbers<float>(rows * cols, cols);
    Buffer<float> y(rows * cols, NAN);
    for (std::size_t i = 0; i < rows * cols; ++i) x[i] *= 200;
    as<void(const float*, float*, long long, long long, cudaStream_t)>()(x.data(), y.data(), rows, static_cast<long long>(cols),
                                                                         nullptr);
    std::vector<double> expected(rows * cols), allowed(rows * cols, 1e-5);
    for (std::size_t r = 0; r < rows; ++r) {
      double m = -INFINITY, d = 0;
      for (std::size_t j = 0; j < cols; ++j) m = std::max(m, static_cast<double>(x[r * cols + j]));
      for (std::size_t j = 0; j < cols; ++j) d += std::exp(x[r * cols + j] - m);
      for (std::size_t j = 0; j < cols; ++j) expected[r * cols + j] = std::exp(x[r * cols + j] - m) / d;
    }
    require_close(y, expected, allowed, "softmax");
  }
}

void attention() {
  using T = __nv_bfloat16;
  for (const auto& [heads, s, d] : {std::array<std::size_t, 3>{1, 1, 64}, {2, 9, 128}, {1, 37, 64}}) {
    const std::size_t size = heads * s * d;
    const Buffer<T> q = random_numbers<T>(size, 1), k = random_numbers<T>(size, 2), v = random_numbers<T>(size, 3);
    Buffer<T> out(size, static_cast<T>(NAN));
    as<void(const T*, const T*, const T*, T*, int, int, int, cudaStream_t)>()(
        q.data(), k.data(), v.data(), out.data(), static_cast<int>(heads), static_cast<int>(s), static_cast<int>(d), nullptr);
    const auto number = [](const Buffer<T>& x, std::size_t i) { return static_cast<double>(static_cast<float>(x[i])); };
    std::vector<double> expected(size), allowed(size, 0x1p-8);
    for (std::size_t row = 0; row < heads * s; ++row) {
      const std::size_t head = row / s * s;
      double sum = 0;
      for (std::size_t j = head; j < head + s; ++j) {
        double score = 0;
        for (std::size_t c = 0; c < d; ++c) score += number(q, row * d + c) * number(k, j * d + c);
        const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
        sum += weight;
        for (std::size_t c = 0; c < d; ++c) expected[row * d + c] += weight * number(v, j * d + c);
      }
      for (std::size_t c = 0; c < d; ++c) expected[row * d + c] /= sum;
    }
    require_close(out, expected, allowed, "attention");
  }
}

void spilling() {
  const Buffer<float> x = random_numbers<float>(512, 1);
  Buffer<float> y(x.size(), NAN);
  as<void(const float*, float*, int, int, float, float, cudaStream_t)>()(x.data(), y.data(), 512, 9, 0.5f, 1.0f, nullptr);
  std::vector<double> expected(x.size()), allowed(x.size(), 1e-3);  // 64 sums of some 130
  for (std::size_t i = 0; i < x.size(); ++i)
    for (int k = 0; k < 64; ++k) expected[i] += 2 + (static_cast<double>(x[i]) + k - 2) / 512;
  require_close(y, expected, allowed, "chains");
}

}  // namespace

int main(int, char** arguments) {
  constexpr std::array<void (*)(), 5> kinds{sgemm, reduction, softmax, attention, spilling};
  return run_checks(kinds[static_cast<std::size_t>(std::atoi(arguments[1]))]);
}
