#include "matmul/mma/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "matmul/forced.h"
#include "matmul/machine.h"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {
namespace {

// Microseconds; measured, docs/log/matmul.md, "Half precision, small or narrow".
constexpr double kStart = 1.0;
constexpr double kHidden = 0.01;       // share of the shorter of tiles and memory that counts; breaks ties between tiles
constexpr double kHiddenTf32 = 0.203;  // the same of fp32, measured: docs/log/matmul.md, "\"high\" by mma.sync"
// CTAs that share a tile's K meet; each of their turns to add the sums (docs/log/matmul.md, "\"high\": K split among CTAs that
// meet").
constexpr double kMeeting = 1.9, kAddition = 0.53;
constexpr std::int64_t kMeetingBytes = 8, kMostSplits = 512;
constexpr double kPays = 0.95;                // of wgmma's prediction
constexpr std::int64_t kLongestK = 1024;      // beyond, the memory's rate is not reached: 16x14336x4096 41 us instead of 31
constexpr std::int64_t kLongestWholeK = 384;  // rows of whole cache lines, which TMA loads best: beyond, 7.4 us instead of 5.9
// Cost of an operand whose rows are unaligned, predicted: per k-block, in k-blocks, and per tile; of the first tile, which waits
// for its loads, and of a further one.
struct Unaligned {
  double block, start, more_block, more;
};
constexpr Unaligned kPairs{0.15, 0.05, 0.15, 0.05}, kWords{0.3, 0.05, 0.3, 0.05}, kElements{1.5, 0.1, 0.8, 0.1};

/// Multiples of which an operand's rows start and end at.
int piece_bytes(const Problem& p, const OperandLines& x) {
  const auto size = static_cast<int>(size_of(p.dtype));
  if (has_vectors(p, x, 16 / size)) return 16;
  if (has_vectors(p, x, 2)) return 2 * size;
  return size;
}

}  // namespace

std::optional<MmaPlan> plan_mma(const Problem& p, const DeviceProperties& gpu, std::string_view forced) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 30) - 4096;  // bytes of a row in 32 bits
  const bool tf32 = p.dtype == DType::f32;
  if (gpu.major != 9 || !(tf32 || is_half(p.dtype)) || p.gated || p.wide_out || p.factor) return {};
  if (tf32 && (!serves_fp32_on_tensor_cores(p, gpu) || p.precision == Precision::highest)) return {};
  if (leaves_out_family(forced, "mma")) return {};
  for (const std::int64_t x : {p.m, p.n, p.k})
    if (x < 1 || x >= kLimit) return {};
  if (ceil_div(p.m, 32) * ceil_div(p.n, 32) >= kLimit / p.batches) return {};
  if ((p.a.row_stride != 1 && p.a.col_stride != 1) || (p.b.row_stride != 1 && p.b.col_stride != 1)) return {};
  if (!tf32 && wgmma_splits(p.n, p.k) > 1) return {};  // wgmma's order of additions is then another

  const bool along_a = p.a.col_stride == 1, along_b = p.b.row_stride == 1;
  MmaPlan best{.tile = tf32 ? MmaTile::tf32_64x64 : MmaTile::t32x32,
               .bytes_a = piece_bytes(p, lines_of_a(p)),
               .bytes_b = piece_bytes(p, lines_of_b(p)),
               .splits = 1,
               .split_blocks = 0,
               .partial_bytes = 0,
               .counter_bytes = 0,
               .seconds = 0};
  double best_us = 1e30;
  const Machine machine = machine_of(gpu);
  Unaligned more{};
  for (const int bytes : {best.bytes_a, best.bytes_b}) {
    if (bytes == 16) continue;
    const Unaligned& x = bytes == 8 ? kPairs : bytes == 4 ? kWords : kElements;
    more.block += x.block, more.start += x.start, more.more_block += x.more_block, more.more += x.more;
  }
  const bool whole =
      (along_a ? p.a.row_stride : p.a.col_stride) % 64 == 0 && (along_b ? p.b.col_stride : p.b.row_stride) % 64 == 0;
  if (!tf32 && forced.empty() && p.k > (best.is_unaligned() || !whole ? kLongestK : kLongestWholeK)) return {};
  const auto size = static_cast<std::int64_t>(size_of(p.dtype));
  const std::int64_t blocks = ceil_div(p.k, kMmaRowBytes / size);
  const double elements =
      static_cast<double>(size) * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.batches);
  const double memory =
      (operand_bytes(p, lines_of_a(p)) + operand_bytes(p, lines_of_b(p)) + elements) / (1e-6 * machine.read_bytes);
  const auto wanted = forced_splits(forced);
  for (std::size_t i = 0; i < kMmaTiles.size(); ++i) {
    const MmaTileInfo& t = kMmaTiles[i];
    if (t.tf32 != tf32 || leaves_out_tile(without_splits(forced), t.name)) continue;
    const std::int64_t tiles = ceil_div(p.m, t.rows) * ceil_div(p.n, t.columns) * p.batches;
    // Each tile loads its rows and columns, from L2 at best.
    const double taken =
        static_cast<double>(size) * static_cast<double>(tiles) * static_cast<double>((t.rows + t.columns) * p.k) + elements;
    const double floor = kStart + std::max(memory, taken / (1e-6 * machine.l2_bytes_mma));
    const auto consider = [&](std::int64_t most) {
      const std::int64_t split_blocks = ceil_div(blocks, most), splits = ceil_div(blocks, split_blocks);
      const auto rounds = static_cast<double>(ceil_div(tiles * splits, gpu.sm_count)), each = static_cast<double>(split_blocks);
      const double busy = t.start + t.block * (1 + more.block) * each +
                          (rounds - 1) * (t.more + more.more + t.more_block * (1 + more.more_block) * each);
      double us = more.start + std::max(busy, floor) + (tf32 ? kHiddenTf32 : kHidden) * std::min(busy, floor);
      if (splits > 1) {  // the sums, written and read, leave L2 between products
        const auto sums = static_cast<double>(size * p.m * ceil_div(p.n, t.columns) * t.columns * p.batches * splits);
        us += kMeeting + kAddition * static_cast<double>(ceil_div(t.rows * t.columns / 4, t.threads() * splits)) +
              2 * sums / (1e-6 * machine.read_bytes);
      }
      if (us >= best_us) return;
      best_us = us, best.tile = static_cast<MmaTile>(i), best.splits = splits, best.split_blocks = split_blocks;
      best.partial_bytes = splits > 1 ? tiles * splits * t.rows * t.columns * size : 0;
      best.counter_bytes = splits > 1 ? tiles * kMeetingBytes : 0;
    };
    if (wanted) {
      if (tf32 && *wanted >= 1 && *wanted <= kMostSplits && ceil_div(blocks, ceil_div(blocks, *wanted)) == *wanted)
        consider(*wanted);
      continue;
    }
    consider(1);
    if (!tf32) continue;
    for (int ctas = 1; ctas <= t.beside; ++ctas)  // an SM: CTAs that wait for each other run at the same time
      for (std::int64_t splits = std::min(blocks, gpu.sm_count * ctas / tiles); splits > 1; splits /= 2) consider(splits);
  }
  if (best_us >= 1e30) return {};  // no such tile
  best.seconds = 1e-6 * best_us;
  return best;
}

bool mma_pays(const MmaPlan& mma, const WgmmaPlan& tensor) { return mma.seconds < kPays * tensor.seconds; }

}  // namespace xgemm::matmul
