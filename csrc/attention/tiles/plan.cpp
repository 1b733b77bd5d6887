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
/// Up to so many rows per key head, one warpgroup computes them all: decoding.
constexpr std::int64_t kFewRows = 64;
/// Up to so many rows, keys may have long splits: there are too few tiles of rows to fill the GPU.
constexpr std::int64_t kShortRows = 1024;
/// Up to so many rows, two tiles, splits are shorter.
constexpr std::int64_t kTwoTiles = 256;
/// Rows of several heads share a tile if rows of one head fill less than this share of what they would fill together.
constexpr double kPackingGain = 0.9;

/// Share of the tiles' rows that are rows of the problem.
double filled(std::int64_t rows, std::int64_t tile) {
  return static_cast<double>(rows) / static_cast<double>(round_up(rows, tile));
}

/// Keys of a split, 0 for all of them. It decides the order of additions, so it depends only on a key head's own rows and keys:
/// decoding fills the GPU by splits; a few tiles of rows need splits only if there are many keys; more rows never. Measured on
/// an H100 (docs/log/attention.md): a compromise between one sequence, which favours short splits, and many, which favour none.
std::int64_t split_keys(std::int64_t rows, std::int64_t sk, bool large_heads) {
  if (rows <= kMmaRows) return (sk <= 8192 ? 512 : sk <= 16384 ? 1024 : 2048) / (large_heads ? 2 : 1);
  if (rows <= kFewRows) return sk <= 4096 ? 512 : sk <= 8192 ? 1024 : 2048;
  if (rows <= kTwoTiles) return sk < 4096 ? 0 : sk < 8192 ? 1024 : 2048;
  return rows > kShortRows || sk < 8192 ? 0 : sk < 16384 ? 2048 : 4096;
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
  const std::int64_t keys = p.batch_invariant ? 0 : split_keys(all_rows, p.sk, std::max(p.d, p.dv) > 128),
                     split = keys == 0 ? round_up(p.sk, tile.keys) : round_up(keys, tile.keys);
  plan.first_split = static_cast<int>(p.key_begin / split);
  plan.splits = static_cast<int>(std::max<std::int64_t>(ceil_div(p.key_end, split) - plan.first_split, 1));
  plan.split_tiles = static_cast<int>(split / tile.keys);
  plan.through_memory = plan.splits > 1 || (!p.portable && 16 % plan.packed != 0);
  plan.tiles = heads * row_tiles;
  const std::int64_t ctas = std::int64_t{p.sm_count} * tile.ctas;
  if (plan.items() > kInt - 2 * ctas) return {};  // CTAs count past the last item: scheduler.cuh, fp16_split/schedule.cuh
  plan.partial_rows = static_cast<int>(std::min<std::int64_t>(plan.tile_rows, p.sq * plan.packed));
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

bool adds_alike(const Tile& a, const Tile& b) {
  return a.keys == b.keys && a.head_size == b.head_size && a.value_size == b.value_size;
}

/// A CTA's rows, weighted by their time and under a causal limit by their keys. Items of one length end together, those of
/// several lengths fill the GPU, as the longest come first.
double work(const Problem& p, const Plan& plan) {
  const Tile& tile = plan.info();
  const double items = static_cast<double>(plan.items()) / plan.ctas, row = tile.rows() * tile.row;
  return p.causal ? items * row * static_cast<double>(p.sk + tile.rows()) : std::ceil(items) * row;
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
  constexpr std::int64_t kEqualKeys = 2048;  // up to so many, sequences are split alike: a list takes 7 us
  SequencePlan plan{.tiles = tiles};
  SequenceSchedule& order = plan.schedule;
  const std::int64_t heads = p.batches / s.count * p.group / tiles.packed, slots = std::int64_t{p.sm_count} * tiles.info().ctas;
  std::int64_t rows = s.count * ceil_div(std::int64_t{s.max_q} * tiles.packed, tiles.tile_rows);  // tiles of them
  const bool one_each = rows == s.count;
  if (s.query_offsets != nullptr) rows = std::min(rows, std::int64_t{s.rows} * tiles.packed / tiles.tile_rows + s.count);

  const std::int64_t key_tiles = ceil_div(s.max_k, tiles.info().keys),
                     least = (kernel == SequenceKernel::few_rows ? 256 : 512) / tiles.info().keys;  // of a split
  const bool split = !p.batch_invariant && key_tiles > least &&
                     (kernel == SequenceKernel::few_rows || (kernel == SequenceKernel::many_rows && rows * heads < slots));
  order.tile_keys = tiles.info().keys, order.least_tiles = split ? static_cast<int>(least) : 0;
  order.heads = ShortDivider::of(heads);
  order.list_splits = std::max<std::int64_t>(kWaves * slots / heads, 1);
  // Without a list, each sequence has the splits that fill one wave. Several sequences may differ in length: then as many as fill
  // two waves, if each is twice as long as it has to be.
  const std::int64_t most = ceil_div(key_tiles, least), one_wave = slots / (heads * s.count),
                     two_waves = 2 * slots / (heads * s.count);
  const std::int64_t equal =
      split ? std::max({std::min(most, one_wave), s.count > 1 ? std::min(most / 2, two_waves) : 0, std::int64_t{1}}) : 1;
  plan.listed = kernel == SequenceKernel::persistent || !one_each || (s.count > 1 && s.max_k > kEqualKeys);
  order.splits = ShortDivider::of(equal);
  const std::int64_t entries = plan.listed ? rows + (split ? order.list_splits : 0) : s.count * equal;
  plan.tiles.tiles = entries * heads, plan.tiles.splits = 1, plan.tiles.own_splits = 1, plan.tiles.first_split = 0;
  if (plan.tiles.tiles > kInt - 2 * slots || plan.tiles.merged_rows() / 4 > kInt) return {};
  order.entries = static_cast<int>(entries);
  plan.tiles.ctas = static_cast<int>(kernel == SequenceKernel::persistent ? std::min(plan.tiles.tiles, slots) : plan.tiles.tiles);
  plan.tiles.through_memory = split && (plan.listed || equal > 1);
  if (kernel == SequenceKernel::persistent)  // without splits: may TMA store whole positions?
    plan.tiles.through_memory = 16 % tiles.packed != 0, plan.tiles.partial_rows = 0;
  plan.tiles.alone = false;
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
    if (!serves || (best && !adds_alike(tile, best->info()))) continue;  // the first that serves decides the order of additions
    const std::optional<Plan> plan = plan_of(p, tile);
    if (!plan) return {};
    if (!best || work(p, *plan) < work(p, *best)) best = plan;
  }
  return best;
}

}  // namespace xgemm::attention
