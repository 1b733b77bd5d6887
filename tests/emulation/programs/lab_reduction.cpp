// v0 to v8 of csrc/lab/reduction: ints must be exact, and v8's sum the same bits whichever block is last. (v9's cooperative
// groups are not emulated.)
#include <array>

#include "check.h"
#include "lab/reduction/reduction.h"

using namespace xgemm::lab::reduction;

namespace {

constexpr std::array<void (*)(const Pass<Int>&), 9> kInts{
    interleaved_modulo, interleaved_strided, sequential, first_add, last_warp, unrolled, several_elements, shuffle, last_block};

/// One pass, whose partial sums are added here.
Int sum(int version, const Buffer<Int>& x, int loads) {
  const auto n = static_cast<std::int64_t>(x.size());
  const std::int64_t blocks = Grid{.version = version, .loads = loads, .blocks_per_sm = 2, .sm_count = 2}.blocks(n);
  Buffer<Int> partials(static_cast<std::size_t>(blocks), 0xdeadbeef), out(1, 0xdeadbeef);
  Buffer<unsigned> counter(1, 0);
  kInts[static_cast<std::size_t>(version)]({.in = x.data(),
                                            .partials = partials.data(),
                                            .out = out.data(),
                                            .counter = counter.data(),
                                            .n = n,
                                            .blocks = blocks,
                                            .loads = loads,
                                            .sm_count = 2,
                                            .stream = nullptr});
  require(counter[0] == 0, "counter that is left zero");
  if (version >= kFirstSinglePass) return out[0];
  Int total = 0;
  for (std::size_t i = 0; i < partials.size(); ++i) total += partials[i];
  return total;
}

float single_pass(const Buffer<float>& x) {
  Buffer<float> partials(4, NAN), out(1, NAN);
  Buffer<unsigned> counter(1, 0);
  last_block({.in = x.data(),
              .partials = partials.data(),
              .out = out.data(),
              .counter = counter.data(),
              .n = static_cast<std::int64_t>(x.size()),
              .blocks = 4,
              .loads = 2,
              .sm_count = 2,
              .stream = nullptr});
  return out[0];
}

}  // namespace

int main(int argc, char** argv) {
  const Buffer<float> floats = random_numbers<float>(5001, 1);
  float first = 0;
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    emulation::launch_options() = {.seed = seed, .concurrent_ctas = 4};
    for (const std::size_t n : {1, 33, 256, 257, 513, 5001}) {
      Buffer<Int> x(n);
      Int exact = 0;
      for (std::size_t i = 0; i < n; ++i) exact += x[i] = static_cast<Int>(i * 2654435761u + seed);
      for (int version = 0; version < static_cast<int>(kInts.size()); ++version)
        for (const int loads : {2, 8})
          if (loads == 8 || version >= 6)
            require(sum(version, x, loads) == exact,
                    [&] { return "exact sum of v" + std::to_string(version) + " at n = " + std::to_string(n); });
    }
    const float now = single_pass(floats);
    require(seed == 0 || now == first, "v8 in the same bits in any order of blocks");
    first = now;
  });
}
