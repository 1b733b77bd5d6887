// What is asked of the planner, and the predicted time of a tile: the longest of what multiplies, what L2 delivers and what
// memory delivers. Microseconds, unless a name says otherwise.
#pragma once
#include <algorithm>

#include "device/integer.h"
#include "matmul/order.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/machine.h"
#include "matmul/plan/tiles.h"

namespace xgemm::matmul {

inline constexpr double kNextLaunch = 1.95;  ///< a kernel that depends on the one before
inline constexpr double kHidden = 0.113;     ///< share of the shorter of compute, memory and L2 that adds to the longest
inline constexpr double kUnalignedC = 3.05;  ///< time of rows of C that begin unaligned, which are stored by element

/// `ctas` of a tile, `depth` of K each, on `at_once` SMs.
inline double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t depth, std::int64_t at_once) {
  const auto blocks = static_cast<double>(ceil_div(depth, t.k)), each = static_cast<double>(ceil_div(ctas, at_once));  // of an SM
  return each * t.start + blocks * std::max(t.block, each * t.more);
}

/// What is shorter is not all hidden.
inline double longest_us(double compute, double memory, double l2 = 0) {
  const double longest = std::max({compute, memory, l2});
  return longest + kHidden * (compute + memory + l2 - longest);
}

/// A problem on a GPU, and what all families ask of them.
struct Question {
  const Problem& p;
  const DeviceProperties& gpu;
  std::string_view forced;
  Legal legal;
  Machine machine;
  double size;              ///< bytes of an element
  double bytes_a, bytes_b;  ///< of operands, once
  double bytes_c;
  std::int64_t chunk, chunks;  ///< of K, on CUDA cores
  bool quads_a, quads_b;       ///< has_vectors of four elements

  Question(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {})
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

  /// A product in `tiles` tiles of `t`, whose K `splits` CTAs share, `depth` each, without launches and the addition of splits.
  /// `l2_bytes`: the rate of the loads, 0 if it never limits; `times_c`: as memory's.
  double product(const TileInfo& t, std::int64_t tiles, std::int64_t splits, std::int64_t depth, double l2_bytes = 0,
                 double times_c = 1) const {
    const double l2 =
        l2_bytes > 0 ? 1e6 * size * static_cast<double>(tiles * (t.m + t.n)) * static_cast<double>(p.k) / l2_bytes : 0;
    return longest_us(compute_us(t, tiles * splits, depth, machine.sm_count), memory(times_c), l2);
  }
  double memory(double times_c = 1) const { return move(bytes_a + bytes_b + times_c * bytes_c); }  ///< A, B and C once
  double stores_of_c() const { return p.dtype == DType::f32 && p.n % 4 != 0 ? kUnalignedC : 1; }  ///< by boxes of TMA: as times_c
  double move(double bytes) const { return 1e6 * bytes / machine.read_bytes; }
  double join(double bytes_of_cta) const { return 1e6 * bytes_of_cta / machine.join_bytes; }  ///< sums of splits that meet
};

}  // namespace xgemm::matmul
