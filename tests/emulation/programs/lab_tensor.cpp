// Steps 10 to 13a of csrc/lab/tensor against products in double: one tile and several, more tiles than the persistent steps have
// clusters, a k that wraps around every ring.
#include "check.h"
#include "lab/tensor/tensor.h"

using namespace xgemm::lab::tensor;
using T = __nv_bfloat16;

namespace {

void check(int m, int n, int k, std::uint64_t seed) {
  const Buffer<T> a = random_numbers<T>(m * k, seed), b = random_numbers<T>(n * k, seed + 1);
  const std::vector<double> rows = doubles(a), columns = doubles(b);
  Expected expected(m * n);
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      const Dot exact = dot(rows.data() + i * k, columns.data() + j * k, k);
      expected.set(i * n + j, exact.sum, std::abs(exact.sum) * 0x1p-8 + exact.magnitude * 1e-6);
    }
  for (int number = 10; number <= 15; ++number) {
    const Step& step = *xgemm::lab::find_step<Step>({number});
    Buffer<T> out(m * n, static_cast<T>(NAN));
    Problem p{.a = a.data(), .b = b.data(), .out = out.data(), .m = m, .n = n, .k = k, .sm_count = 2};
    require(make_maps(p), "tensor maps");
    emulation::launch_options() = {.seed = seed, .concurrent_ctas = 2};
    step.launch(p, nullptr);
    expected.compare(out, text(step.name, ", ", m, " x ", n, " x ", k, ", seed ", seed));
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_seeds(argc, argv, [&](std::uint64_t seed) {
    if (seed % 2 == 0)
      check(256, 512, 64 * 6, seed);
    else
      check(512, 256, 64, seed);
  });
}
