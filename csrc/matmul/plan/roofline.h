// What the planner is asked, and what candidates are made of: predicted times (microseconds), tiles, splits of K, the least time.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "device/integer.h"
#include "matmul/order.h"
#include "matmul/plan/machine.h"
#include "matmul/plan/tiles.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// Sizes of the kernels that load by TMA: its coordinates are of 32 bits, and tiles may end past the last line.
inline constexpr std::int64_t kMostLines = (std::int64_t{1} << 31) - 1024;

/// The families that can do a problem and that `forced` does not leave out. A family says in its kernel's header what it needs.
struct Legal {
  bool gemv, dot, sweep, outputs, simt, fp64, mma, large, sliced, tf32, bf16x3, wgmma;
};
Legal legal(const Problem& p, const DeviceProperties& gpu, std::string_view forced);

// XGEMM_MATMUL_PLAN, `forced` here: the name of a family ("wgmma") or of one of its tiles ("wgmma_128x128"), of fp64 and mma_tf32
// also with a number of splits of K ("fp64_64x64/4"); empty: the planner chooses.
bool names_a_tile(std::string_view forced);
bool leaves_out_tile(std::string_view forced, std::string_view tile);  ///< of a family that is not left out
std::optional<std::int64_t> forced_splits(std::string_view forced);
bool is_plan_name(std::string_view forced);
std::string plan_names();  ///< all of them, for a message

inline constexpr double kLaunch = 1.03;       ///< everything but the tiles
inline constexpr double kNextLaunch = 1.95;   ///< a kernel that depends on the one before
inline constexpr double kReadSplit = 0.0347;  ///< such a kernel's read of a split's sums, one after another
inline constexpr double kHidden = 0.113;      ///< share of the shorter of compute, memory and L2 that adds to the longest
inline constexpr int kMostWaves = 8;          ///< CTAs of an SM that splits may give it if they do not wait for each other

/// `ctas` of a tile, `depth` of K each, on `at_once` SMs.
inline double compute_us(const TileInfo& t, std::int64_t ctas, std::int64_t depth, std::int64_t at_once) {
  const auto blocks = static_cast<double>(ceil_div(depth, t.k)), each = static_cast<double>(ceil_div(ctas, at_once));  // of an SM
  return each * t.start + blocks * std::max(t.block, each * t.more);
}

/// The longest of what multiplies, what memory and what L2 deliver. What is shorter is not all hidden.
inline double longest_us(double compute, double memory, double l2 = 0) {
  const double longest = std::max({compute, memory, l2});
  return longest + kHidden * (compute + memory + l2 - longest);
}

/// A problem on a GPU, and what all families ask of them.
struct Question {
  const Problem& p;
  const DeviceProperties& gpu;
  std::string_view forced{};
  Legal legal = matmul::legal(p, gpu, forced);
  Machine machine = machine_of(gpu);
  double size = static_cast<double>(size_of(p.dtype));                                          ///< bytes of an element
  double bytes_a = operand_bytes(p, lines_of_a(p)), bytes_b = operand_bytes(p, lines_of_b(p));  ///< of operands, once
  double bytes_c = size * static_cast<double>(p.m * p.n) * static_cast<double>(p.batches);
  bool hopper = gpu.major == 9, quads_a = has_vectors(p, lines_of_a(p), 4), quads_b = has_vectors(p, lines_of_b(p), 4);

  std::int64_t tiles(const TileInfo& t) const { return ceil_div(p.m, t.m) * ceil_div(p.n, t.n) * p.batches; }
  double move(double bytes) const { return 1e6 * bytes / machine.read_bytes; }
  double memory(double times_c = 1) const { return move(bytes_a + bytes_b + times_c * bytes_c); }  ///< A, B and C once
  /// Of all SMs per second, by boxes of TMA.
  double l2_tma_bytes() const { return bytes_a + bytes_b < kH200L2 ? machine.l2_hit_bytes : machine.l2_miss_bytes; }

  /// A product in `tiles` tiles of `t`, whose K `splits` CTAs share, `depth` each, without launches and the addition of splits.
  /// `tma`: loads are boxes of TMA; `times_c`: of C's bytes.
  double product(const TileInfo& t, std::int64_t tiles, std::int64_t splits, std::int64_t depth, bool tma = false,
                 double times_c = 1) const {
    const double loads = size * static_cast<double>(tiles * (t.m + t.n)) * static_cast<double>(p.k),
                 l2_bytes = tma ? l2_tma_bytes() : machine.l2_async_bytes;
    return longest_us(compute_us(t, tiles * splits, depth, machine.sm_count), memory(times_c), 1e6 * loads / l2_bytes);
  }
  // The addition of `splits` partial sums: by another launch, which reads `bytes` a split; or by CTAs that meet, which takes
  // `wait` and the exchange of a CTA's `bytes`.
  double add_by_launch(std::int64_t splits, std::int64_t bytes) const {
    const double each = kReadSplit + move(2.0 * static_cast<double>(bytes));  // of a split
    return splits == 1 ? 0 : kNextLaunch + static_cast<double>(splits) * each;
  }
  double add_by_meeting(double wait, std::int64_t splits, double bytes) const {
    return splits == 1 ? 0 : wait + 1e6 * bytes / machine.join_bytes;
  }
};

/// Calls f(tile, info) for the tiles that `forced` does not leave out.
template <class Tile, std::size_t kCount, class F>
void each_tile(const Tiles<kCount>& tiles, std::string_view forced, const F& f) {
  for (std::size_t i = 0; i < kCount; ++i)
    if (!leaves_out_tile(forced, tiles[i].name)) f(static_cast<Tile>(i), tiles[i]);
}

/// Calls f(splits, each) for splits of `blocks`, `each` long: for none; where `tiles` leave room for more, for as many as give
/// every SM 1 to `ctas` CTAs, or a half, a quarter ... of these.
template <class F>
void each_split(const Question& q, std::int64_t blocks, std::int64_t tiles, int ctas, const F& f) {
  constexpr std::int64_t kMost = 512;  // split_k/meeting.cuh counts to 1023
  if (const auto wanted = forced_splits(q.forced)) {
    const std::int64_t each = ceil_div(blocks, std::max<std::int64_t>(*wanted, 1));
    return ctas > 0 && *wanted <= kMost && ceil_div(blocks, each) == *wanted ? f(*wanted, each) : void();
  }
  f(1, blocks);
  for (int of_sm = 1; of_sm <= ctas; ++of_sm)
    for (std::int64_t splits = std::min({blocks, kMost, q.gpu.sm_count * of_sm / tiles}); splits > 1; splits /= 2) {
      const std::int64_t each = ceil_div(blocks, splits);
      f(ceil_div(blocks, each), each);
    }
}

/// Keeps the candidate of least time; of equal ones the first.
template <class FamilyPlan>
struct Least {
  std::optional<FamilyPlan> best;
  void consider(FamilyPlan plan, double us) {
    plan.seconds = 1e-6 * us;
    if (!best || plan.seconds < best->seconds) best = plan;
  }
};

}  // namespace xgemm::matmul
