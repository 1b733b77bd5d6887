// The steps of csrc/lab/experiments/transpose.cu, in sizes around the edges of tiles.
#include <array>

#include "check.h"
#include "lab/experiments/experiments.h"

using namespace xgemm::lab::experiments;

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [](std::uint64_t seed) {
    emulation::launch_options() = {.seed = seed};
    for (const auto& [rows, cols] : {std::array{1, 1}, {1, 100}, {100, 1}, {31, 33}, {32, 64}, {65, 97}}) {
      const auto count = static_cast<std::size_t>(rows * cols);
      const Buffer<float> in = random_numbers<float>(count, seed);
      for (const auto step : {Transposition::naive, Transposition::tiled, Transposition::padded, Transposition::swizzled}) {
        Buffer<float> out(count, NAN);
        transpose(in.data(), out.data(), rows, cols, step, nullptr);
        for (int r = 0; r < rows; ++r)
          for (int c = 0; c < cols; ++c)
            require(out[static_cast<std::size_t>(c * rows + r)] == in[static_cast<std::size_t>(r * cols + c)],
                    [&] { return "right element " + std::to_string(r) + ", " + std::to_string(c); });
      }
    }
  });
}
