// The lab's experiments, softmax and reduction ladders against double, and the SGEMM ladder's bits against each other; sizes
// around the edges of blocks and tiles. One seed of each but the reductions, whose threads meet: the program's argument says how
// many.
#include <array>
#include <numeric>

#include "check.h"
#include "lab/experiments/experiments.h"
#include "lab/reduction/reduction.h"
#include "lab/sgemm/sgemm.h"
#include "lab/softmax/softmax.h"

using namespace xgemm::lab;
namespace ex = experiments;

namespace {

using Numbers = std::vector<double>;

void copies() {
  for (const std::size_t n : {1, 2, 127, 1000, 5003}) {
    const Buffer<float> x = random_numbers<float>(n, n);
    const auto count = static_cast<std::int64_t>(n);
    for (const int stride : {1, 2, 3, 8, 32})
      for (const int loads : {1, 8}) {
        Buffer<float> out(n, NAN);
        ex::strided_copy(x.data(), out.data(), count, stride, 96, loads, nullptr);
        for (std::size_t i = 0; i < n; ++i)
          require(out[i] == x[i * static_cast<std::size_t>(stride) % n], "strided copy of " + std::to_string(n));
      }
    for (const auto [loads, width] : {std::pair{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2}, {1, 4}})
      for (const int blocks : {0, 3}) {
        const std::size_t whole = n / static_cast<std::size_t>(width) * static_cast<std::size_t>(width);
        // From the front of the buffer's end: aligned to 16 bytes.
        Buffer<float> from(whole), out(whole, NAN);
        for (std::size_t i = 0; i < whole; ++i) from[i] = x[i];
        if (whole == 0) continue;
        const ex::CopyShape shape{.threads = 96, .loads = loads, .width = width, .blocks = blocks};
        require(ex::concurrent_copy(from.data(), out.data(), static_cast<std::int64_t>(whole), shape, nullptr), "copy kernel");
        for (std::size_t i = 0; i < whole; ++i) require(out[i] == x[i], "copy of " + std::to_string(whole));
      }
  }
}

void arithmetic() {
  const Buffer<float> x = random_numbers<float>(3 * 40, 7);
  for (const int registers : {2, 3})
    for (const int unroll : {8, 64})
      for (const int chains : {1, 2, 4, 8, 16}) {
        if (registers == 2 && (chains > 1 || unroll == 8)) continue;
        Buffer<float> factors(2), out(x.size(), NAN);
        factors[0] = -0.75f, factors[1] = registers == 2 ? -0.75f : 0.3f;
        const ex::FmaShape shape{.threads = 40, .chains = chains, .iterations = 133, .unroll = unroll, .registers = registers};
        require(ex::fma_chains(x.data(), factors.data(), out.data(), 3, shape, nullptr), "kernel of FMAs");
        Numbers expected(x.size()), allowed(x.size(), chains * 1e-5);
        for (std::size_t i = 0; i < x.size(); ++i)
          for (int k = 0; k < chains; ++k) {
            double y = x[i] + k;
            for (int step = 0; step < 133; ++step) y = y * static_cast<double>(factors[0]) + static_cast<double>(factors[1]);
            expected[i] += y;
          }
        require_close(out, expected, allowed, "fma_chains");
      }
  for (const std::size_t n : {4, 1020, 2052})
    for (const int steps : {0, 1, 9}) {
      const Buffer<float> from = random_numbers<float>(n, n);
      Buffer<float> out(n, NAN);
      Buffer<double> wide(n), wide_out(n, NAN);
      Numbers expected(n), allowed(n, 1e-6);
      for (std::size_t i = 0; i < n; ++i) {
        wide[i] = from[i];
        expected[i] = 2 + (from[i] - 2.0) * std::pow(0.5, steps);
      }
      ex::intensity(from.data(), out.data(), static_cast<std::int64_t>(n), steps, 0.5f, 1.0f, nullptr);
      ex::intensity(wide.data(), wide_out.data(), static_cast<std::int64_t>(n), steps, 0.5, 1.0, nullptr);
      require_close(out, expected, allowed, "intensity");
      for (std::size_t i = 0; i < n; ++i) require(std::abs(wide_out[i] - expected[i]) < 1e-14, "intensity in double");
    }
  for (const int registers : {31, 33, 40, 41, 64, 65, 128})
    for (const bool memory : {true, false}) {
      const std::size_t n = 1300;
      const Buffer<float> from = random_numbers<float>(n, 3);
      Buffer<float> out(n, NAN);
      const ex::RegisterShape shape{.registers = registers, .memory = memory, .iterations = 5, .blocks = 2};
      require(ex::register_bound(from.data(), out.data(), n, shape, nullptr), "kernel of so many registers");
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = memory ? from[i] : 2 + (from[i] - 2.0) / 32;
        require(std::abs(out[i] - expected) < 1e-6, "register_bound");
      }
    }
}

void walks() {
  for (const bool shared : {false, true}) {
    const int n = 37;
    Buffer<int> next(n);
    for (int i = 0; i < n; ++i) next[static_cast<std::size_t>(i)] = (i + 5) % n;
    Buffer<std::int64_t> out(2, -1);
    ex::pointer_chase(next.data(), n, out.data(), 101, 3, shared, nullptr);
    require(out[0] == (3 + 5 * (4096 + 101)) % n, "walk");
  }
}

void reads() {
  const int repeats = 3, blocks = 2;
  for (const ex::Level level : {ex::Level::global, ex::Level::l1, ex::Level::shared}) {
    const bool whole = level == ex::Level::global;
    for (const std::size_t n :
         whole ? std::vector<std::size_t>{4, 1028, 10'004} : std::vector<std::size_t>{blocks * ex::kReadChunk}) {
      Buffer<float> x(n), out(blocks * ex::kReadThreads, NAN);
      for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(1 + i * 7 % 11);
      ex::read_rate(x.data(), out.data(), static_cast<std::int64_t>(n), {.level = level, .blocks = blocks, .repeats = repeats},
                    nullptr);
      double expected = 0, got = 0;
      for (std::size_t i = 0; i < n; ++i) expected += repeats * x[i];
      for (std::size_t i = 0; i < out.size(); ++i) got += out[i];
      require(got == expected, "sum of what was read of " + std::to_string(n));
    }
  }
}

void additions() {
  using ex::Addition;
  for (const std::size_t n : {1, 255, 256, 512, 1027})
    for (const Addition addition : {Addition::plain, Addition::unguarded, Addition::privatised, Addition::coarsened2,
                                    Addition::coarsened4, Addition::vector2, Addition::vector4}) {
      if (addition == Addition::unguarded && n % ex::kAdditionThreads != 0) continue;
      const Buffer<float> a = random_numbers<float>(n, n), b = random_numbers<float>(n, n + 1);
      Buffer<float> out(n, NAN);
      ex::vector_add(a.data(), b.data(), out.data(), static_cast<std::int64_t>(n), addition, nullptr);
      for (std::size_t i = 0; i < n; ++i) require(out[i] == a[i] + b[i], "vector addition of " + std::to_string(n));
    }
}

void warps() {
  for (const dim3 block : {dim3(70), dim3(5, 7), dim3(3, 4, 5), dim3(32, 2)}) {
    const std::size_t threads = block.x * block.y * block.z, blocks = 3;
    Buffer<std::int64_t> out(5 * threads * blocks, -1);
    ex::who_am_i(out.data(), blocks, block, 0, nullptr);
    for (std::size_t i = 0; i < threads * blocks; ++i) {
      const std::size_t thread = i % threads;
      require(out[5 * i] == static_cast<std::int64_t>(thread % 32), "lane");
      require(out[5 * i + 1] == static_cast<std::int64_t>(thread - thread % 32), "first thread of the warp");
      require(out[5 * i + 3] <= out[5 * i + 4], "time");
    }
  }
}

void softmaxes() {
  using Variant = void (*)(const softmax::Problem&, cudaStream_t);
  const std::array<Variant, 4> variants{softmax::naive, softmax::safe, softmax::online, softmax::online4};
  for (const std::size_t cols : {1, 5, 255, 257, 1023, 1500}) {
    const std::size_t rows = 6;
    for (std::size_t v = 0; v < variants.size(); ++v) {
      Buffer<float> x = random_numbers<float>(rows * cols, cols), y(rows * cols, 7);
      for (std::size_t i = 0; i < rows * cols; ++i) x[i] *= v == 0 ? 4 : 300;
      if (v > 0) {  // masked rows, and what makes a row NaN
        for (std::size_t j = 0; j < cols; ++j) x[j] = -INFINITY;
        for (std::size_t j = 1; j < cols; ++j) x[cols + j] = -INFINITY;
        x[2 * cols + cols / 2] = INFINITY;
        x[3 * cols + cols / 3] = NAN;
      }
      variants[v](
          {.x = x.data(), .y = y.data(), .rows = static_cast<std::int64_t>(rows), .cols = static_cast<std::int64_t>(cols)},
          nullptr);
      for (std::size_t r = 0; r < rows; ++r) {
        double m = -INFINITY, d = 0;
        for (std::size_t j = 0; j < cols; ++j) m = std::max(m, static_cast<double>(x[r * cols + j]));
        for (std::size_t j = 0; j < cols; ++j) d += std::exp(x[r * cols + j] - m);
        for (std::size_t j = 0; j < cols; ++j) {
          const double expected = std::exp(x[r * cols + j] - m) / d, got = y[r * cols + j];
          require(std::isnan(expected) ? std::isnan(got) : std::abs(got - expected) <= 1e-5 * expected + 1e-30,
                  "softmax " + std::to_string(v) + " of " + std::to_string(cols) + " columns, row " + std::to_string(r));
        }
      }
    }
  }
}

void reductions(std::uint64_t seed) {
  using namespace reduction;
  using Version = void (*)(const Pass<Int>&);
  const std::array<Version, 8> versions{interleaved_modulo, interleaved_strided, sequential, first_add, last_warp,
                                        unrolled,           several_elements,    shuffle};
  for (const std::int64_t n : {1, 255, 257, 1025, 9001})
    for (int version = 0; version < 8; ++version)
      for (const int loads : {2, 8}) {
        if (version < 6 && loads == 2) continue;
        Buffer<Int> x(static_cast<std::size_t>(n));
        Int expected = 0;
        for (std::size_t i = 0; i < x.size(); ++i) expected += x[i] = static_cast<Int>(i * 2654435761u + seed);
        const Grid grid{.version = version, .loads = loads, .blocks_per_sm = 1, .sm_count = 3};
        const std::int64_t blocks = grid.blocks(n);
        Buffer<Int> partials(static_cast<std::size_t>(blocks), 0);
        emulation::launch_options() = {.seed = seed};
        versions[static_cast<std::size_t>(version)](
            {.in = x.data(), .partials = partials.data(), .n = n, .blocks = blocks, .loads = loads, .stream = nullptr});
        require(std::accumulate(partials.data(), partials.data() + blocks, Int{0}) == expected,
                "sum by version " + std::to_string(version) + " of " + std::to_string(n));
      }
}

/// With every seed only the step whose copies are asynchronous.
void sgemm_bits(std::uint64_t seed) {
  using namespace sgemm;
  const std::array<Step, 9> steps{naive,      coalesced, shared_tile,   block_tile_1d, block_tile_2d,
                                  vectorised, warp_tile, conflict_free, double_buffer};
  for (const auto& [m, n, k] : {std::array{1, 37, 5}, {33, 65, 20}, {129, 132, 36}, {9, 8, 0}}) {
    const Buffer<float> a = random_numbers<float>(static_cast<std::size_t>(m * k), 1),
                        b = random_numbers<float>(static_cast<std::size_t>(k * n), 2),
                        c = random_numbers<float>(static_cast<std::size_t>(m * n), 3);
    Buffer<float> first(static_cast<std::size_t>(m * n));
    for (std::size_t i = 0; i < first.size(); ++i) {
      float sum = 0;
      for (int j = 0; j < k; ++j)
        sum += a[i / static_cast<std::size_t>(n) * static_cast<std::size_t>(k) + static_cast<std::size_t>(j)] *
               b[static_cast<std::size_t>(j * n) + i % static_cast<std::size_t>(n)];
      first[i] = std::fma(3.0f, c[i], -0.5f * sum);
    }
    for (std::size_t s = seed == 0 ? 0 : 8; s < steps.size(); ++s) {
      Buffer<float> out(first.size(), NAN);
      emulation::launch_options() = {.seed = seed};
      steps[s](
          {.a = a.data(), .b = b.data(), .c = c.data(), .out = out.data(), .m = m, .n = n, .k = k, .alpha = -0.5f, .beta = 3},
          nullptr);
      for (std::size_t i = 0; i < out.size(); ++i)
        require(out[i] == first[i], "SGEMM step " + std::to_string(s + 1) + " in the bits of a loop in k's order");
    }
  }
}

/// Every variant in the bits of a loop in k's order: the emulator's compiler contracts nothing.
void tilings() {
  using enum ex::Tiling;
  for (const auto& [m, n, k] : {std::array{1, 7, 5}, {30, 32, 70}, {33, 65, 20}}) {
    const Buffer<float> a = random_numbers<float>(static_cast<std::size_t>(m * k), 1),
                        b = random_numbers<float>(static_cast<std::size_t>(k * n), 2);
    std::vector<float> loop(static_cast<std::size_t>(m * n));
    for (int j = 0; j < k; ++j)
      for (int row = 0; row < m; ++row)
        for (int col = 0; col < n; ++col)
          loop[static_cast<std::size_t>(row * n + col)] +=
              a[static_cast<std::size_t>(row * k + j)] * b[static_cast<std::size_t>(j * n + col)];
    for (const ex::Tiling tiling : {naive, fixed, dynamic, single_block, conflicting, padded, uncontracted})
      for (const int tile : {8, 16, 32}) {
        if (tile < 32 && tiling != fixed && tiling != dynamic) continue;
        if (tiling == single_block && (m > 32 || n > 32)) continue;
        Buffer<float> c(loop.size(), NAN);
        ex::tiled_matmul({.a = a.data(), .b = b.data(), .c = c.data(), .m = m, .n = n, .k = k}, tiling, tile, nullptr);
        for (std::size_t i = 0; i < loop.size(); ++i)
          require(c[i] == loop[i], "tiled product " + std::to_string(static_cast<int>(tiling)) + " in the bits of a loop");
      }
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int seeds = count > 1 ? std::atoi(arguments[1]) : 2;
  return run_checks([&] {
    copies();
    arithmetic();
    walks();
    reads();
    additions();
    warps();
    softmaxes();
    tilings();
    for (int seed = 0; seed < seeds; ++seed) {
      sgemm_bits(static_cast<std::uint64_t>(seed));
      reductions(static_cast<std::uint64_t>(seed));
    }
  });
}
