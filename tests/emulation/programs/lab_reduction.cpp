// v8 of csrc/lab/reduction, whose last CTA adds what the others have written: exact ints, and floats in the same bits whichever
// CTA is last. (v0 to v7 have no asynchrony; v9's cooperative groups are not emulated.)
#include "check.h"
#include "lab/reduction/reduction.h"

using namespace xgemm::lab::reduction;

namespace {

template <class T>
T sum(const Buffer<T>& x, std::int64_t blocks, int loads) {
  Buffer<T> partials(static_cast<std::size_t>(blocks), static_cast<T>(0xdeadbeef)), out(1, static_cast<T>(0xdeadbeef));
  Buffer<unsigned> counter(1, 0);
  last_block({.in = x.data(),
              .partials = partials.data(),
              .out = out.data(),
              .counter = counter.data(),
              .n = static_cast<std::int64_t>(x.size()),
              .blocks = blocks,
              .loads = loads,
              .sm_count = 2,
              .stream = nullptr});
  require(counter[0] == 0, "counter that is left zero");
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
      for (const int loads : {2, 8}) {
        const Grid grid{.version = 8, .loads = loads, .blocks_per_sm = 2, .sm_count = 2};
        require(sum(x, grid.blocks(static_cast<std::int64_t>(n)), loads) == exact,
                [&] { return "exact sum at n = " + std::to_string(n); });
      }
    }
    const float now = sum(floats, 4, 2);
    require(seed == 0 || now == first, "the same bits in any order of blocks");
    first = now;
  });
}
