#include "attention/tiles/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/integer.h"

namespace xgemm::attention {
namespace {
constexpr std::int64_t kInt = std::numeric_limits<std::int32_t>::max();

/// Keys and values of a section: most of L2 (50 MB), FlashAttention-3's figure.
constexpr std::int64_t kSectionBytes = 32 << 20;
constexpr std::int64_t kFewRows = 64;      ///< up to so many rows per key head, one warpgroup computes them all: decoding
constexpr std::int64_t kShortRows = 1024;  ///< only more rows take tiles that are for long keys
constexpr std::int64_t kFewestKeys = 128;  ///< keys of a split, at least
/// CTAs that read at the memory's full rate, of one an SM (on an H200, 64 of 132 reach 60 %).
constexpr double kReaders = 0.82;
/// Rows of several heads share a tile if rows of one head fill less than this share of what they would fill together.
constexpr double kPackingGain = 0.9;

/// Share of the tiles' rows that are rows of the problem.
double filled(std::int64_t rows, std::int64_t tile) {
  return static_cast<double>(rows) / static_cast<double>(round_up(rows, tile));
}

/// Predicted times on an H200 of `tiles` of `rows` rows each, in splits of the keys.
struct Roofline {
  static constexpr double kItem = 1, kMerge = 2;  // microseconds: a CTA's beginning and end; one launch more
  static constexpr double kBytes = 4.4e6;         // that memory delivers in a microsecond
  static constexpr double kOperations = 150;      // of tensor cores in the time of a byte

  const Problem& p;
  const Tile& tile;
  std::int64_t tiles, rows;
  std::int64_t readers = 1;  // tiles that read the same keys, of which L2 serves all but one
  std::int64_t key_tiles = std::max<std::int64_t>(ceil_div(p.key_end, tile.keys) - p.key_begin / tile.keys, 1),
               slots = std::int64_t{p.sm_count} * tile.ctas;
  // Half of the slots read at the memory's rate where rows are few; else products and exponentials wait for each other.
  bool few = rows <= kMmaRows;
  double busy = few ? kReaders * p.sm_count : static_cast<double>(slots);
  double bytes = 2. * static_cast<double>(p.d + (p.latent ? 0 : p.dv)),
         operations = 2. * static_cast<double>((p.d + p.dv) * tile.rows()),
         key = std::max(busy * bytes / static_cast<double>(readers), static_cast<double>(slots) * operations / kOperations) /
               kBytes;

  /// Microseconds with `split` tiles of keys a split.
  double us(std::int64_t split) const {
    const std::int64_t items = tiles * ceil_div(key_tiles, split), rest = items % slots;
    // The last round of few rows: two items take an SM twice as long as one. An item of narrow heads has fewer bytes in flight.
    const double alone = few ? static_cast<double>(tile.head_size + tile.value_size) / static_cast<double>(p.d + p.dv) : 1,
                 of_sm = few ? static_cast<double>(ceil_div(rest, p.sm_count)) : 1,
                 last = rest == 0 ? 0 : std::max({alone, of_sm, static_cast<double>(rest) / busy}),
                 rounds = static_cast<double>(items - rest) / busy + last;
    const double merge = split >= key_tiles ? 0 : kMerge + static_cast<double>(16 * items * rows * p.dv) / kBytes;
    return rounds * (static_cast<double>(split * tile.keys) * key + kItem) + merge;
  }
};

/// Tiles of keys of a split: the number of splits that ends first, of those that fill one to three rounds of CTAs.
std::int64_t choose_split(const Roofline& roofline) {
  constexpr std::int64_t kRounds = 3;
  const Problem& p = roofline.p;
  const std::int64_t least = ceil_div(kFewestKeys, roofline.tile.keys);
  std::int64_t best = std::min(roofline.key_tiles, p.most_split_tiles);
  // Under a causal limit that hides many keys, tiles that fill half of the slots end together; splits take up to twice as long.
  const bool triangle = p.causal && p.key_begin == 0 && 2 * p.sq > p.sk;
  if (p.batch_invariant || (triangle && 2 * roofline.tiles >= roofline.slots)) return best;
  for (const std::int64_t ctas : {std::int64_t{p.sm_count}, roofline.slots})
    for (std::int64_t rounds = 1; rounds <= kRounds; ++rounds) {
      const std::int64_t splits = rounds * ctas / roofline.tiles,
                         split = std::max(ceil_div(roofline.key_tiles, std::max<std::int64_t>(splits, 1)), least);
      if (split < best && roofline.us(split) < roofline.us(best)) best = split;
    }
  return best;
}

/// The plan for the problem by this tile; nothing if counts do not fit.
std::optional<Plan> plan_of(const Problem& p, const Tile& tile) {
  const std::int64_t all_rows = p.sq * p.group, rows = tile.rows();
  Plan plan{.table = p.table, .tile = static_cast<int>(&tile - p.table.data())};
  // Without splits, TMA stores the 16 rows of a warp: whole positions.
  const bool stores_packed = (p.portable ? p.group <= rows : 16 % p.group == 0) && all_rows <= kInt - rows;
  if ((tile.consumers == 1 && !p.portable) || (stores_packed && filled(p.sq, rows) < kPackingGain * filled(all_rows, rows)))
    plan.packed = static_cast<int>(p.group);
  plan.tile_rows = static_cast<int>(rows / plan.packed * plan.packed);

  const std::int64_t heads = p.batches * p.group / plan.packed, row_tiles = ceil_div(p.sq * plan.packed, plan.tile_rows);
  plan.partial_rows = static_cast<int>(std::min<std::int64_t>(plan.tile_rows, p.sq * plan.packed));
  plan.tiles = heads * row_tiles;
  const std::int64_t split = choose_split({p, tile, plan.tiles, plan.partial_rows});
  plan.split_tiles = static_cast<int>(split), plan.first_split = static_cast<int>(p.key_begin / (split * tile.keys));
  plan.splits = static_cast<int>(std::max<std::int64_t>(ceil_div(p.key_end, split * tile.keys) - plan.first_split, 1));
  plan.through_memory = plan.splits > 1 || (!p.portable && 16 % plan.packed != 0);
  const std::int64_t ctas = std::int64_t{p.sm_count} * tile.ctas;
  if (plan.items() > kInt - 2 * ctas) return {};  // CTAs count past the last item: scheduler.cuh
  plan.row_tiles = static_cast<int>(row_tiles);
  plan.ctas = static_cast<int>(p.portable ? plan.items() : std::min(plan.items(), ctas));
  plan.masking = p.masking;
  if (has_mask(p.masking)) {
    plan.key_tiles = static_cast<int>(ceil_div(p.sk, tile.keys));
    plan.mask_tiles = p.mask_batches * (p.mask_heads ? p.group / plan.packed : 1) *
                      (p.mask_rows || (p.mask_heads && plan.packed > 1) ? row_tiles : 1);
    if (plan.mask_tiles * plan.key_tiles > kInt) return {};
  }
  if (p.causal) {  // tiles differ in length: the longest of several heads first. Else head by head.
    const std::int64_t key_heads = std::max<std::int64_t>(kSectionBytes / (2 * p.sk * (p.d + p.dv)), 1);
    std::int64_t section = std::min(key_heads * (p.group / plan.packed), heads);
    while (heads % section != 0) --section;
    plan.section_heads = static_cast<int>(section);
  }
  return plan;
}

/// A CTA's rows, weighted by their time and under a causal limit by their keys. Items of one length end together; those of
/// several lengths fill the GPU, as the longest, which takes twice the mean time, comes first.
double work(const Problem& p, const Plan& plan) {
  const Tile& tile = plan.info();
  const double items = static_cast<double>(plan.items()) / plan.ctas, row = tile.rows() * tile.row,
               keys = static_cast<double>(p.sk) / static_cast<double>(plan.splits);
  return p.causal ? std::max(items, 2.) * row * (keys + tile.rows()) : std::ceil(items) * row * keys;
}

/// Without a causal limit, tiles of different keys, of which only one may need splits, are compared by predicted times.
bool is_faster(const Problem& p, const Plan& a, const Plan& b) {
  const auto us = [&](const Plan& x) {
    return x.info().row * Roofline{p, x.info(), x.tiles, x.partial_rows, x.row_tiles}.us(x.split_tiles);
  };
  return p.causal || a.info().keys == b.info().keys ? work(p, a) < work(p, b) : us(a) < us(b);
}

}  // namespace

Problem sequence_problem(Problem p, const Sequences& s) {
  p.batches = p.batches / (s.query_offsets == nullptr ? s.count : 1) * s.count;
  p.sq = s.max_q, p.sk = p.key_end = std::max(s.max_k, 1), p.key_begin = 0;
  p.causal = true, p.masking = Masking::sequences;  // tiles differ in length
  return p;
}

std::optional<SequencePlan> plan_sequences(const Problem& p, const Sequences& s, const Plan& tiles, SequenceKernel kernel) {
  constexpr std::int64_t kWaves = 2;         // of a list's splits: more have more beginnings, fewer leave SMs idle at the end
  constexpr std::int64_t kShortKeys = 2048;  // up to so many, lengths do not differ by as much as splits and a list take
  SequencePlan plan{.tiles = tiles};
  SequenceSchedule& order = plan.schedule;
  const std::int64_t heads = p.batches / s.count * p.group / tiles.packed, slots = std::int64_t{p.sm_count} * tiles.info().ctas;
  std::int64_t rows = s.count * ceil_div(std::int64_t{s.max_q} * tiles.packed, tiles.tile_rows);  // tiles of them
  const bool one_each = rows == s.count, few = kernel == SequenceKernel::few_rows;
  if (s.query_offsets != nullptr) rows = std::min(rows, std::int64_t{s.rows} * tiles.packed / tiles.tile_rows + s.count);

  // Where sequences fill the GPU, splits make up for different lengths alone.
  const std::int64_t busy = few ? static_cast<std::int64_t>(kReaders * static_cast<double>(p.sm_count)) : slots,
                     all = s.count * heads;
  const std::int64_t key_tiles = ceil_div(s.max_k, tiles.info().keys),
                     least = (few ? kFewestKeys : 512) / tiles.info().keys;  // of a split
  const bool split = !p.batch_invariant && key_tiles > least && (all < busy || s.max_k > kShortKeys) &&
                     (few || (kernel == SequenceKernel::many_rows && rows * heads < slots));
  plan.listed = kernel == SequenceKernel::persistent || !one_each || (split && s.count > kDividedSequences);
  order.tile_keys = ShortDivider::of(tiles.info().keys), order.least_tiles = split ? static_cast<int>(least) : 0;
  order.heads = ShortDivider::of(heads);
  // Without a list: splits that run with their sequences, if all do; else short ones, as sequences come in any order,
  // unless they are of nearly equal lengths.
  const bool together = all <= slots;
  order.readers = together ? static_cast<float>(busy) : static_cast<float>(all) / 1.5f;
  const std::int64_t ctas = plan.listed ? kWaves * slots : together ? std::max(slots - all, 3 * slots / 4) : 4 * slots;
  order.splits = ceil_div(ctas, heads);
  plan.merged_tiles = s.count * heads;
  plan.mean_splits = split ? order.splits / s.count + 1 : 1;
  const std::int64_t more = split ? std::min(order.splits, rows * (ceil_div(key_tiles, least) - 1)) : 0, entries = rows + more;
  plan.tiles.tiles = entries * heads, plan.tiles.splits = 1, plan.tiles.first_split = 0;
  if (plan.tiles.tiles > kInt - 2 * slots || plan.tiles.merged_rows() / 4 > kInt) return {};
  order.entries = static_cast<int>(entries);
  plan.tiles.ctas = static_cast<int>(kernel == SequenceKernel::persistent ? std::min(plan.tiles.tiles, slots) : plan.tiles.tiles);
  plan.tiles.through_memory = split;
  if (kernel == SequenceKernel::persistent)  // without splits: may TMA store whole positions?
    plan.tiles.through_memory = 16 % tiles.packed != 0, plan.tiles.partial_rows = 0;
  return plan;
}

std::optional<Plan> plan_tiles(const Problem& p) {
  if (!p.possible || p.sq < 1 || p.sk < 1 || p.d < 1 || p.dv < 1 || p.batches < 1) return {};
  const std::int64_t all_rows = p.sq * p.group;
  // Positions plus either length, and a tile beyond, must fit 32 bits.
  if (p.sq + p.sk + 1024 > kInt) return {};
  const bool few = !p.batch_invariant && all_rows <= kFewRows;
  const bool long_full = !p.batch_invariant && !p.causal && all_rows > kShortRows;
  std::optional<Plan> best;
  for (const Tile& tile : p.table) {
    const bool serves = (p.portable || (tile.consumers == 1) == few) && tile.serves(p.masking) &&
                        (tile.serving != Serving::long_full || long_full) && p.d <= tile.head_size && p.dv <= tile.value_size;
    if (!serves) continue;
    // The first that serves is the one for the head size, and decides the order of additions of the batch-invariant mode.
    if (best && (tile.head_size != best->info().head_size || tile.value_size != best->info().value_size ||
                 (p.batch_invariant && tile.keys != best->info().keys)))
      continue;
    const std::optional<Plan> plan = plan_of(p, tile);
    if (!plan) return {};
    if (!best || is_faster(p, *plan, *best)) best = plan;
  }
  return best;
}

}  // namespace xgemm::attention
