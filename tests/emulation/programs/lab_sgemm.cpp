// The SGEMM ladder's steps 07, 07a and 07b (asynchronous copies) in the bits of a loop in k's order, sizes around the edges of
// tiles.
#include <array>

#include "check.h"
#include "lab/sgemm/sgemm.h"

using namespace xgemm::lab::sgemm;

namespace {

void check(std::uint64_t seed) {
  for (const auto& [m, n, k] : {std::array{1, 37, 5}, {33, 65, 20}, {129, 132, 36}, {9, 8, 0}}) {
    const Buffer<float> a = random_numbers<float>(m * k, 1), b = random_numbers<float>(k * n, 2),
                        c = random_numbers<float>(m * n, 3);
    Buffer<float> first(m * n);
    for (std::size_t i = 0; i < first.size(); ++i) {
      float sum = 0;
      for (int j = 0; j < k; ++j) sum += a[i / n * k + j] * b[(j * n) + i % n];
      first[i] = std::fma(3.0f, c[i], -0.5f * sum);
    }
    for (const int step : {7, 8, 9}) {
      Buffer<float> out(first.size(), NAN);
      emulation::launch_options() = {.seed = seed};
      xgemm::lab::find_step<Step>({step})->launch(
          {.a = a.data(), .b = b.data(), .c = c.data(), .out = out.data(), .m = m, .n = n, .k = k, .alpha = -0.5f, .beta = 3},
          nullptr);
      for (std::size_t i = 0; i < out.size(); ++i) require(out[i] == first[i], "step in the bits of a loop in k's order");
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return run_seeds(argc, argv, check); }
