// csrc/matmul/fp64_mma/launch.cu, host code and kernels, against products in long double: random sizes, strides, layouts, batches
// and epilogues; every tile, segments added by one CTA and by several, with the same bits; NaN and Inf where they belong.
#include "matmul/fp64_mma/launch.cu"
#include "random_product.h"

using namespace xgemm;
using namespace xgemm::matmul;

namespace {

/// A batch of matrices of `lines` by `k`; lines are rows of A, columns of B.
struct Matrix {
  std::int64_t line_stride, k_stride, batch_stride, offset;
  Buffer<double> values;
  Matrix(Random& random, int lines, int k, int batches, std::uint64_t seed)
      : Matrix(layout(random, lines, k), random(0, 2), batches, lines, k, seed) {}
  double operator()(int batch, int line, int at) const {
    return values[offset + batch * batch_stride + line * line_stride + at * k_stride];
  }
  double& at(int batch, int line, int at) { return values[offset + batch * batch_stride + line * line_stride + at * k_stride]; }
  const double* data() const { return values.data() + offset; }

 private:
  struct Layout {
    std::int64_t line_stride, k_stride, elements;
  };
  static Layout layout(Random& random, int lines, int k) {
    const int kind = random(0, 4), more = random(0, 3);
    if (kind < 2) return {k + more + (k + more) % 2 * (kind % 2), 1, std::int64_t{lines} * (k + 4)};
    if (kind < 4) return {1, lines + more + (lines + more) % 2 * (kind % 2), std::int64_t{k} * (lines + 4)};
    return {2 * k + 1, 2, std::int64_t{lines} * (2 * k + 1)};
  }
  /// The last element, or the one after it, is the last of its page: nothing after it may be read.
  Matrix(const Layout& l, int behind, int batches, int lines, int k, std::uint64_t seed)
      : line_stride(l.line_stride),
        k_stride(l.k_stride),
        batch_stride(l.elements + behind % 2),
        values(random_numbers<double>(static_cast<std::size_t>(l.elements * batches + 32) / 16 * 16, seed)) {
    const std::int64_t last = (batches - 1) * batch_stride + (lines - 1) * line_stride + (k - 1) * k_stride;
    offset = static_cast<std::int64_t>(values.size()) - 1 - last - behind % 2;
  }
};

Buffer<double> product(const Problem& asked, std::string_view tile, std::int64_t share, std::uint64_t seed, bool& splits) {
  Problem p = asked;
  Buffer<double> out(static_cast<std::size_t>(p.batches * p.m * p.n), NAN);
  p.out = out.data();
  const DeviceProperties gpu{.major = 9, .sm_count = 4, .smem_per_block = 227 * 1024, .smem_per_sm = 228 * 1024};
  auto plan = offer_fp64({p, gpu, tile});
  require(plan.has_value(), "plan");
  // As many segments per CTA as requested, if the tile has room for their totals.
  const std::int64_t segments = std::max<std::int64_t>(1, (plan->blocks + plan->segment - 1) / plan->segment);
  if (share < segments || geometry(plan->tile).slots_beside_totals > 0) {
    plan->split_blocks = std::min(plan->blocks, share * plan->segment), plan->splits = (segments + share - 1) / share;
    plan->workspace_bytes = plan->splits > 1 ? 8 * segments * p.batches * p.m * p.n : 0;
  }
  splits = plan->splits > 1;
  Buffer<double> workspace(static_cast<std::size_t>(plan->workspace_bytes / 8 + 1), NAN);
  emulation::launch_options() = {.seed = seed};
  launch_fp64(p, *plan, workspace.data(), nullptr);
  return out;
}

void check(std::uint64_t seed) {
  Random random{seed * 7919 + 1};
  const int m = random(0, 2) ? random(1, 150) : random(1, 20), n = random(5, 150), batches = random(0, 3) ? 1 : random(2, 3);
  const int k = random(0, 2) == 0 ? random(512, 1100) : random(1, 100);
  Matrix a(random, m, k, batches, seed), b(random, n, k, batches, seed + 1);
  const Buffer<double> bias = random_numbers<double>(static_cast<std::size_t>(n), seed + 2),
                       c = random_numbers<double>(static_cast<std::size_t>(m) * n, seed + 3),
                       residual = random_numbers<double>(static_cast<std::size_t>(batches) * m * n, seed + 4);
  const bool special = random(0, 2) == 0;
  if (special) a.at(0, random(0, m - 1), random(0, k - 1)) = random(0, 1) ? NAN : INFINITY;
  Problem p;
  p.dtype = DType::f64, p.m = m, p.n = n, p.k = k, p.batches = batches, p.batch_dims = batches > 1, p.batch[0] = batches;
  p.a = {a.data(), a.line_stride, a.k_stride, {a.batch_stride}};
  p.b = {b.data(), b.k_stride, b.line_stride, {b.batch_stride}};
  const int epilogue = random(0, 3);
  if (epilogue & 1) p.bias = {bias.data(), 0, 1}, p.alpha = 0.75;
  if (epilogue & 2) {
    p.c = {c.data(), n, 1}, p.beta = -0.5, p.activation = Activation::relu;
    p.residual = {residual.data(), 1, m, {std::int64_t{m} * n}};
  }
  const std::string name = std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " of " +
                           std::to_string(batches) + " seed " + std::to_string(seed);
  const std::string_view first_tile = kFp64Tiles[seed % kFp64Tiles.size()].name,
                         second_tile = kFp64Tiles[(seed + 1 + seed / kFp64Tiles.size()) % kFp64Tiles.size()].name;
  bool splits = false;
  const Buffer<double> out = product(p, first_tile, random(1, 5), seed, splits);
  for (int batch = 0; batch < batches; ++batch)
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < n; ++j) {
        long double sum = 0, most = 0;
        for (int x = 0; x < k; ++x) {
          const long double term = static_cast<long double>(a(batch, i, x)) * b(batch, j, x);
          sum += term, most += std::abs(term);
        }
        long double y = p.alpha * sum;
        if (epilogue & 2) y += p.beta * static_cast<long double>(c[static_cast<std::size_t>(i * n + j)]);
        if (epilogue & 1) y += bias[static_cast<std::size_t>(j)];
        if (epilogue & 2) y = (y > 0 || std::isnan(y) ? y : 0) + residual[static_cast<std::size_t>((batch * n + j) * m + i)];
        const double got = out[static_cast<std::size_t>((batch * m + i) * n + j)];
        const bool right = std::isnan(y)   ? std::isnan(got)
                           : std::isinf(y) ? got == static_cast<double>(y)
                                           : std::abs(got - y) <= 0x1p-52L * (most * std::sqrt(static_cast<long double>(k)) + 4);
        require(right, [&] {
          return name + " " + std::string(first_tile) + ": " + std::to_string(got) + " instead of " +
                 std::to_string(static_cast<double>(y)) + " at " + std::to_string(batch) + ", " + std::to_string(i) + ", " +
                 std::to_string(j);
        });
      }
  // Another tile, another split, and a row alone: the same bits.
  const Buffer<double> again = product(p, second_tile, random(1, 5), seed + 1, splits);
  for (std::size_t i = 0; i < out.size(); ++i)
    require(std::bit_cast<std::uint64_t>(out[i]) == std::bit_cast<std::uint64_t>(again[i]) ||
                (out[i] != out[i] && again[i] != again[i]),
            [&] { return "equal bits: " + name + " " + std::string(second_tile); });
  if (epilogue & 2) return;
  Problem row = p;
  const int which = random(0, m - 1);
  row.m = 1, row.a.data = a.data() + which * a.line_stride;
  const Buffer<double> alone = product(row, {}, random(1, 5), seed, splits);
  for (int batch = 0; batch < batches; ++batch)
    for (int j = 0; j < n; ++j) {
      const double x = out[static_cast<std::size_t>((batch * m + which) * n + j)],
                   y = alone[static_cast<std::size_t>(batch * n + j)];
      require(x == y || (x != x && y != y), [&] { return "equal row: " + name; });
    }
}

}  // namespace

int main(int argc, char** argv) { return run_seeds(argc, argv, check); }
