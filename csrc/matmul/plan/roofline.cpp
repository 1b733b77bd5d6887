#include "matmul/plan/roofline.h"

#include <algorithm>

#include "device/integer.h"

namespace xgemm::matmul {
namespace {

constexpr double kHidden = 0.113;     // share of the shorter of compute, memory and L2 that adds to the longest
constexpr double kUnalignedC = 3.05;  // time of rows of C that begin unaligned, which are stored by element

}  // namespace

Question::Question(const Problem& p, const DeviceProperties& gpu, std::string_view forced)
    : p(p),
      gpu(gpu),
      forced(forced),
      legal(matmul::legal(p, gpu, forced)),
      machine(machine_of(gpu)),
      size(static_cast<double>(size_of(p.dtype))),
      bytes_a(operand_bytes(p, lines_of_a(p))),
      bytes_b(operand_bytes(p, lines_of_b(p))),
      bytes_c(size * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches)),
      chunk(chunk_length(p.n, p.k)),
      chunks(chunk_count(p.n, p.k)),
      quads_a(has_vectors(p, lines_of_a(p), 4)),
      quads_b(has_vectors(p, lines_of_b(p), 4)) {}

double Question::stores_of_c() const { return p.dtype == DType::f32 && p.n % 4 != 0 ? kUnalignedC : 1; }

double Question::product(const TileInfo& t, std::int64_t tiles, std::int64_t splits, std::int64_t depth, double l2_bytes,
                         double times_c) const {
  const double l2 =
      l2_bytes > 0 ? 1e6 * size * static_cast<double>(tiles * (t.m + t.n)) * static_cast<double>(p.k) / l2_bytes : 0;
  return longest_us(compute_us(t, tiles * splits, depth, machine.sm_count), memory(times_c), l2);
}

double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t depth, std::int64_t at_once) {
  const auto blocks = static_cast<double>(ceil_div(depth, t.k)), each = static_cast<double>(ceil_div(ctas, at_once));  // of an SM
  return each * t.start + blocks * std::max(t.block, each * t.more);
}

double longest_us(double compute, double memory, double l2) {
  const double longest = std::max({compute, memory, l2});
  return longest + kHidden * (compute + memory + l2 - longest);
}

}  // namespace xgemm::matmul
