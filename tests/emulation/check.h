// For test programs: buffers with guarded ends, numbers, comparisons.
#pragma once
#include <sys/mman.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "emulation.h"

using emulation::text;

/// Elements that end at an inaccessible page (rounded up to 16 bytes), so that accesses past the end fault.
template <class T>
class Buffer {
 public:
  explicit Buffer(std::size_t count, T value = {}) : count_(count) {
    constexpr std::size_t kPage = 4096;
    const std::size_t bytes = (count * sizeof(T) + 15) / 16 * 16, pages = (bytes + kPage - 1) / kPage * kPage;
    room_ = pages + kPage;
    memory_ = static_cast<char*>(mmap(nullptr, room_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + pages, kPage, PROT_NONE);
    data_ = reinterpret_cast<T*>(memory_ + pages - bytes);
    for (std::size_t i = 0; i < count; ++i) data_[i] = value;
  }
  Buffer(Buffer&& other) noexcept : count_(other.count_), room_(other.room_), memory_(other.memory_), data_(other.data_) {
    other.memory_ = nullptr;
  }
  ~Buffer() {
    if (memory_) munmap(memory_, room_);
  }
  T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  std::size_t count_, room_;
  char* memory_;
  T* data_;
};

inline void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(text("no ", what));
}
/// what(): only if it is printed, since it takes longer than most checks.
template <class What>
  requires std::is_invocable_v<What>
void require(bool condition, const What& what) {
  if (!condition) throw std::runtime_error(text("no ", what()));
}

/// A launch leaves its counters as it found them.
template <class T>
void require_zeros(const Buffer<T>& counters) {
  for (std::size_t i = 0; i < counters.size(); ++i) require(counters[i] == 0, "zero counter afterwards");
}

/// Uniform in [-1, 1).
template <class T>
Buffer<T> random_numbers(std::size_t count, std::uint64_t seed) {
  Buffer<T> numbers(count);
  std::uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15ull;
  for (std::size_t i = 0; i < count; ++i) {
    x ^= x >> 12, x ^= x << 25, x ^= x >> 27;
    numbers[i] = static_cast<T>(static_cast<float>(static_cast<std::int32_t>((x * 0x2545f4914f6cdd1dull) >> 32)) * 0x1p-31f);
  }
  return numbers;
}

/// x rounded to tf32.
inline double tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu);
}

/// Numbers in double, for dot() and add_multiple().
template <class T>
std::vector<double> doubles(const Buffer<T>& numbers) {
  std::vector<double> values(numbers.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (sizeof(T) == 8)
      values[i] = numbers[i];
    else
      values[i] = static_cast<float>(numbers[i]);
  }
  return values;
}

// Vectorised: at -Og the references would take longer than the kernels.
#define VECTORISED [[gnu::optimize("O3", "associative-math", "no-signed-zeros", "no-trapping-math")]] inline
struct Dot {
  double sum, magnitude;  ///< of the products, of their absolute values
};
VECTORISED Dot dot(const double* x, const double* y, std::int64_t count) {
  double sum = 0, magnitude = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i], magnitude += __builtin_fabs(x[i] * y[i]);
  return {sum, magnitude};
}
/// sums += weight x, magnitudes += |weight x|.
VECTORISED void add_multiple(double weight, const double* x, std::int64_t count, double* sums, double* magnitudes) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) sums[i] += weight * x[i], magnitudes[i] += __builtin_fabs(weight * x[i]);
}
#undef VECTORISED

/// What results must be, up to an allowed error: zeros unless set. Infinities must be equal.
class Expected {
 public:
  explicit Expected(std::size_t count) : values_(count), allowed_(count) {}
  void set(std::size_t at, double value, double allowed) { values_[at] = value, allowed_[at] = allowed; }
  /// The program has checked this element itself.
  void skip(std::size_t at) { allowed_[at] = INFINITY; }

  template <class T>
  void compare(const Buffer<T>& got, const std::string& what) const {
    std::size_t wrong = 0, first = 0;
    for (std::size_t i = 0; i < values_.size(); ++i)
      if (!is_right(i, static_cast<float>(got[i])) && wrong++ == 0) first = i;
    if (wrong)
      throw std::runtime_error(text(what, ": ", wrong, " of ", values_.size(), " wrong, the first at ", first, ": ",
                                    static_cast<float>(got[first]), " instead of ", values_[first]));
  }

 private:
  bool is_right(std::size_t i, double x) const {
    return std::isinf(values_[i]) ? x == values_[i] : allowed_[i] == INFINITY || std::abs(x - values_[i]) <= allowed_[i];
  }
  std::vector<double> values_, allowed_;
};

/// The program's exit status; prints what went wrong.
template <class F>
int run_checks(const F& checks) {
  try {
    checks();
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  std::printf("passed\n");
  return 0;
}

/// The exit status of a program whose arguments are how many seeds (default: 4) and the first of them (0).
template <class F>
int run_seeds(int argc, char** argv, const F& check) {
  const auto argument = [&](int i, std::uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  const std::uint64_t first = argument(2, 0), end = first + argument(1, 4);
  return run_checks([&] {
    for (std::uint64_t seed = first; seed < end; ++seed) check(seed);
  });
}
