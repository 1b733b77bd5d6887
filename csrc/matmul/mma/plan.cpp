#include "matmul/mma/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/plan/legality.h"
#include "matmul/plan/roofline.h"

namespace xgemm::matmul {
namespace {

constexpr double kLaunch = 1.01;  // microseconds: everything but the tiles
// More of a k-block for an operand whose rows are unaligned, loaded through registers by element; by 4 bytes a quarter of it, by
// 8 an eighth.
constexpr double kElements = 1.17;
// CTAs that share a tile's K meet; microseconds.
constexpr double kMeeting = 2.06;
constexpr std::int64_t kMeetingBytes = 8, kMostSplits = 512;
/// Half precision: beyond, or with rows of whole cache lines, which TMA loads best, wgmma is faster.
constexpr std::int64_t kLongestK = 1024, kLongestWholeK = 384;

/// Multiples of which an operand's rows start and end at.
int piece_bytes(const Problem& p, const OperandLines& x) {
  const auto size = static_cast<int>(size_of(p.dtype));
  return has_vectors(p, x, 16 / size) ? 16 : has_vectors(p, x, 2) ? 2 * size : size;
}

}  // namespace

std::optional<MmaPlan> plan_mma(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  if (!serves_mma(p, gpu) || leaves_out_family(forced, "mma")) return {};
  const Machine machine = machine_of(gpu);
  const bool tf32 = p.dtype == DType::f32, along_a = p.a.col_stride == 1, along_b = p.b.row_stride == 1;
  MmaPlan best{};
  best.bytes_a = piece_bytes(p, lines_of_a(p)), best.bytes_b = piece_bytes(p, lines_of_b(p)), best.seconds = 1e30;
  const bool whole =
      (along_a ? p.a.row_stride : p.a.col_stride) % 64 == 0 && (along_b ? p.b.col_stride : p.b.row_stride) % 64 == 0;
  if (!tf32 && forced.empty() && p.k > (best.is_unaligned() || !whole ? kLongestK : kLongestWholeK)) return {};
  double slower = 1;
  for (const int bytes : {best.bytes_a, best.bytes_b})
    slower += bytes == 16 ? 0 : bytes == 8 ? kElements / 8 : bytes == 4 ? kElements / 4 : kElements;
  const auto wanted = forced_splits(forced);
  for (std::size_t i = 0; i < kMmaTiles.size(); ++i) {
    const auto tile = static_cast<MmaTile>(i);
    TileInfo t = info(tile);
    if (is_tf32(tile) != tf32 || leaves_out_tile(forced, t.name)) continue;
    t.block *= slower, t.more *= slower;
    const std::int64_t columns = ceil_div(p.n, t.n), tiles = ceil_div(p.m, t.m) * columns * p.batches,
                       blocks = ceil_div(p.k, t.k);
    const auto consider = [&](std::int64_t most) {
      const std::int64_t each = ceil_div(blocks, most), splits = ceil_div(blocks, each);
      double us = kLaunch + longest_us(compute_us(t, tiles * splits, each * t.k, gpu.sm_count), memory_us(p, machine),
                                       l2_us(p, t, tiles, machine.l2_async_bytes));
      if (splits > 1) {  // the sums, written and read, leave L2 between products
        const std::int64_t sums = 4 * t.m * t.n;
        us += join_us(kMeeting, static_cast<double>(sums), machine) +
              1e6 * 2 * static_cast<double>(tiles * splits * sums) / machine.read_bytes;
      }
      if (1e-6 * us >= best.seconds) return;
      best.seconds = 1e-6 * us, best.tile = tile, best.splits = splits, best.split_blocks = each;
      best.partial_bytes = splits > 1 ? tiles * splits * t.m * t.n * 4 : 0;
      best.counter_bytes = splits > 1 ? tiles * kMeetingBytes : 0;
    };
    if (wanted) {
      if (tf32 && *wanted >= 1 && *wanted <= kMostSplits && ceil_div(blocks, ceil_div(blocks, *wanted)) == *wanted)
        consider(*wanted);
      continue;
    }
    consider(1);
    for (int ctas = 1; tf32 && ctas <= t.per_sm; ++ctas)  // an SM: CTAs that wait for each other run at the same time
      for (std::int64_t splits = std::min(blocks, gpu.sm_count * ctas / tiles); splits > 1; splits /= 2) consider(splits);
  }
  if (best.seconds >= 1e30) return {};  // no such tile
  return best;
}

}  // namespace xgemm::matmul
