#include "reduce/plan.h"

#include <algorithm>
#include <numeric>

#include "device/integer.h"
#include "reduce/dims.h"

namespace xgemm::reduce {

namespace {

// Both kernels keep four 16-byte loads per thread in flight.
constexpr std::int64_t kUnroll = 4;
constexpr std::int64_t kThreads = 256;
// 16-byte vectors of a strip; elements of the longest row that is read one at a time by one warp.
constexpr std::int64_t kStrip = 512, kLongestElements = 2048;

/// Is the result of one element the element itself (argmax: a zero)?
bool copies(Kind kind) {
  const State state = state_of(kind);
  return state == State::sum || state == State::maximum || state == State::index || kind == Kind::logsumexp;
}

/// The row's length alone decides the strips. How many strips (or short rows) a CTA takes also depends on the number of rows.
void plan_rows(Plan& plan, const DeviceProperties& gpu) {
  constexpr std::int64_t kWarp = 32, kWarps = kThreads / kWarp, kStep = kWarp * kUnroll, kFewLanes = 8;
  constexpr std::int64_t kGrouped = 1 << 20, kMinGroup = 4096, kMaxGroup = 32768, kGroups = 512, kMaxRowsPerTeam = 8,
                         kMaxStrips = 4096;
  constexpr std::int64_t kLeastBulk = 65, kMostBulk = 256, kManyVectors = 4096, kCluster = 8, kMaxCluster = 16;
  constexpr std::int64_t kMostStateBytes = 40 << 10;  // of a cluster: a CTA's shared memory without an attribute is 48 KiB
  const std::int64_t resident = 4 * std::max(gpu.sm_count, 1);  // blocks at a time
  const std::int64_t vectors = plan.vectors, runs = plan.pieces > 0 ? plan.length / plan.run : 1;
  plan.kernel = Kernel::rows;
  if (vectors <= kStrip && runs == 1) {
    plan.chunk = std::max<std::int64_t>(vectors, 1);
    plan.threads = static_cast<int>(kThreads);
    // The elements of an incomplete last vector go to one lane each. The rows of a warp share the fixed cost of a row, so 16-bit
    // rows, and fp32 rows that are not whole vectors, have up to four steps per lane, but at least eight lanes.
    const std::int64_t in_steps = plan.vector ? std::max<std::int64_t>(plan.full, 1) : plan.chunk;
    const bool several = size_of(plan.in) == 2 || (plan.in == DType::f32 && plan.full < plan.vectors);
    const std::int64_t lanes = round_up_pow2(ceil_div(in_steps, kUnroll));
    const bool through_shared = size_of(plan.in) == 2 && plan.full == vectors && vectors >= kLeastBulk && vectors <= kMostBulk;
    // If a row's fixed cost is small, small pieces are faster in shared memory.
    const std::int64_t steps = through_shared && plan.kind == Kind::logsumexp ? 2 : 4;
    plan.lanes = static_cast<int>(
        several ? std::clamp(round_up_pow2(ceil_div(in_steps, steps * kUnroll)), std::min(lanes, kFewLanes), kWarp)
                : std::min(lanes, kWarp));
    plan.bulk = gpu.major == 9 && through_shared && plan.outputs * vectors >= kManyVectors * gpu.sm_count;
    // A row of one step takes less time than starting a warp.
    const std::int64_t teams = kThreads / plan.lanes, most = vectors <= kStep ? kMaxRowsPerTeam : 1;
    plan.per_block = teams * std::clamp<std::int64_t>(plan.outputs / (teams * 4 * resident), 1, most);
    plan.blocks = ceil_div(plan.outputs, plan.per_block);
    return;
  }
  plan.lanes = static_cast<int>(kWarp);
  plan.grouped = runs > 1 ? runs * plan.pieces > kMaxStrips : vectors > kGrouped;
  // The mean of losses is a single row that nothing overlaps: the warps of a cluster take as few steps each as possible.
  constexpr std::int64_t kMostWarps = kMaxCluster * kWarps;
  const bool waited_for = plan.kind == Kind::mean_loss && vectors <= kMostWarps * kStrip;
  const bool long_strips = plan.grouped && runs == 1;
  plan.chunk = long_strips ? std::clamp(round_up_pow2(vectors / kGroups), kMinGroup, kMaxGroup) / kWarps : kStrip;
  if (waited_for) plan.chunk = ceil_div(ceil_div(vectors, kMostWarps), kStep) * kStep;
  plan.strips = plan.per_block = runs > 1 ? runs * plan.pieces : ceil_div(vectors, plan.chunk);
  // The number of warps that leaves the fewest idle in the last round of strips; with many rows one or two warps per CTA, which
  // wait less for each other. The order in which states are joined does not depend on the number of warps as long as no thread
  // joins two: up to 32 states for any number of warps, 128 for four.
  std::int64_t warps = std::min(kWarps, plan.strips);
  const auto rounds = [&](std::int64_t w) { return ceil_div(plan.strips, w); };
  for (std::int64_t w = warps - 1; 2 * w >= kWarps && plan.strips <= kThreads / 2; --w)
    if (rounds(w) * w < rounds(warps) * warps) warps = w;
  if (plan.strips <= kWarp) {
    std::int64_t enough = plan.strips <= 4 ? 1 : 2;
    while (enough < warps && plan.outputs * enough < resident * kWarps * 3 / 2) enough *= 2;
    warps = std::min(warps, enough);
  }
  if (plan.grouped) {
    warps = kWarps;
    plan.per_block = runs > 1 ? std::clamp(round_up_pow2(plan.strips / kGroups), kWarps, kMaxStates) : kWarps;
  } else if (plan.strips > kWarps && (plan.outputs < resident || plan.strips > kMaxStates)) {
    warps = kWarps;
    const std::int64_t share = ceil_div(plan.strips * plan.outputs, 4 * resident);  // half a block's warps if rows are few
    plan.per_block =
        waited_for ? kWarps
                   : std::min({share <= kWarps / 2 ? kWarps / 2 : ceil_div(share, kWarps) * kWarps, plan.strips, kMaxStates});
  }
  plan.threads = static_cast<int>(warps * kWarp);
  plan.split = ceil_div(plan.strips, plan.per_block);
  const bool held = plan.strips * static_cast<std::int64_t>(state_bytes(state_of(plan.kind), plan.in)) <= kMostStateBytes;
  if (gpu.major == 9 && !plan.grouped && held && plan.split <= (waited_for ? kMaxCluster : kCluster))
    plan.cluster = static_cast<int>(plan.split);
  plan.blocks = plan.outputs * plan.split;
}

/// Of a column's maximum: value and position.
constexpr std::size_t index_part_bytes(std::int64_t width) { return width >= 8 ? 4 : width == 4 ? 8 : 16; }

/// Bytes that a thread of the kernels for columns keeps for a column within its CTA.
std::size_t part_bytes(const Plan& plan, std::int64_t width) {
  const State state = state_of(plan.kind);
  return state == State::index ? index_part_bytes(width) : state_bytes(state, plan.in);
}

/// Threads of a CTA of the column kernel.
int threads_of(const Plan& plan, std::int64_t width) {
  return column_threads(part_bytes(plan, width), static_cast<std::size_t>(width));
}

/// The most lanes of a folded tile: then the positions of a thread are misaligned alike for any stride.
std::int64_t most_fold_lanes(const Plan& plan, std::int64_t width) {
  return threads_of(plan, width) / std::max<std::int64_t>(8, width);
}

/// How many neighbouring positions of `columns` columns, of `count` dense positions in all, become one position of more
/// columns: as many as fill a tile, in whole vectors; 1 if one position fills most of its lanes.
std::int64_t repeat_of(const Plan& plan, std::int64_t columns, std::int64_t count, std::int64_t width) {
  const std::int64_t most = (most_fold_lanes(plan, width) - 1) * width, unit = width / std::gcd(columns, width);
  const bool whole = plan.run == 1 && plan.aligned;
  const std::int64_t lanes = round_up_pow2(ceil_div(columns, width) + (whole ? 0 : 1));
  if (10 * columns > 7 * lanes * width || unit * columns > most || columns > most / 2) return 1;
  return std::min(most / (unit * columns), ceil_div(count, unit)) * unit;
}

/// A tile of `lanes` 16-byte columns and threads / lanes positions at a time. `outer`: kept groups of columns; `stride`: of the
/// reduced dim, 0 if there are several; `misaligned`: the base is. The misalignment may decide only which thread reads which
/// element, and `outer` only how many parts a CTA takes.
void plan_columns(Plan& plan, std::int64_t outer, std::int64_t width, std::int64_t stride, bool misaligned,
                  const DeviceProperties& gpu) {
  constexpr std::int64_t kMinSteps = 8, kMaxSteps = 128, kManyTilesPerSm = 32, kWarp = 32;
  const bool index = state_of(plan.kind) == State::index, folded = plan.run * plan.repeat > 1;
  const std::int64_t threads = threads_of(plan, width), sms = std::max(gpu.sm_count, 1);
  plan.kernel = Kernel::columns;
  plan.threads = static_cast<int>(threads);
  // 8-bit elements: 16 states per thread; half as many lanes keep as many positions side by side.
  const std::int64_t most = folded        ? most_fold_lanes(plan, width)
                            : width == 16 ? kWarp / 2
                                          : kWarp,
                     vectors = ceil_div(plan.columns, width);
  // Unaligned rows need one more 16-byte block.
  const bool runs = plan.vector && stride >= width;
  std::int64_t lanes = std::min(most, round_up_pow2(vectors + (folded || (runs && !plan.aligned) ? 1 : 0)));
  // With very many columns a CTA takes kilobytes side by side, so that few states are left to join.
  while (!folded && width < 16 && lanes < threads && ceil_div(vectors, 2 * lanes) >= kManyTilesPerSm * sms) lanes *= 2;
  const bool many = !folded && lanes > kWarp;
  plan.lanes = static_cast<int>(lanes);
  const std::int64_t rows = threads / lanes;
  // If all positions of a thread have the same misalignment, it reads aligned blocks, one more than the tile has vectors. The
  // order of additions is the same. Folded tiles always have room for that block.
  const bool alike = runs && rows * stride % width == 0 && (vectors < lanes || lanes >= most);
  const auto columns_of = [&](bool moved) {
    const std::int64_t columns = (moved ? lanes - 1 : lanes) * width;
    return folded ? std::min(columns / plan.run * plan.run, plan.columns) : columns;
  };
  const bool moved = folded || (alike && (!plan.aligned || misaligned));
  const std::int64_t tiles = ceil_div(plan.columns, columns_of(folded || (alike && !plan.aligned)));
  plan.blocks_loaded = folded ? alike : moved || (plan.aligned && !misaligned);
  plan.span = static_cast<int>(moved ? lanes - 1 : lanes);
  plan.tile = static_cast<int>(columns_of(moved));
  plan.tiles = ceil_div(plan.columns, plan.tile);
  plan.results = plan.outputs_of_tile = plan.tile;
  plan.result_lanes = plan.lanes;
  if (folded) {
    const std::int64_t joined = plan.run * plan.repeat;
    plan.outputs_of_tile = static_cast<int>(plan.tile / joined);
    plan.result_lanes = static_cast<int>(round_up_pow2(ceil_div(std::int64_t{plan.outputs_of_tile}, width)));
    plan.results = plan.result_lanes * static_cast<int>(width);
    plan.fold_lanes = static_cast<int>(std::min(round_up_pow2(joined), kWarp));
  }

  // One wave of CTAs if each then gets few steps: as many per SM as fit, but one for 16-bit elements, which leaves fewer
  // partial results and reads fewer rows at once. Else waves of at most kMaxSteps steps.
  const std::int64_t resident = (threads == 256 ? 3 : 2) * sms, blocks = threads == 512 && width == 8 ? sms : resident;
  const auto whole_steps = [&](std::int64_t positions) { return ceil_div(positions, kUnroll * rows) * kUnroll * rows; };
  std::int64_t steps = std::max(ceil_div(plan.positions * (folded ? tiles : ceil_div(vectors, lanes)), rows * blocks), kMinSteps);
  const bool waves = steps > kMaxSteps && tiles > sms;
  if (waves) steps = kMaxSteps;
  if (many) steps = ceil_div(plan.positions, rows);
  plan.chunk = whole_steps(steps * rows);
  // A few CTAs more than fit at a time take as long as twice as many.
  const std::int64_t fitting = std::max<std::int64_t>(resident / tiles, 1);
  if (!waves && !many && tiles <= resident && ceil_div(plan.positions, plan.chunk) > fitting)
    plan.chunk = whole_steps(ceil_div(plan.positions, fitting));
  if (index) plan.chunk = std::min(plan.chunk, width >= 8 ? kKeyPositions : kPartPositions);
  plan.strips = std::max<std::int64_t>(ceil_div(plan.positions, plan.chunk), 1);
  // With many groups a CTA takes several parts of one, which are joined in the same order.
  const std::int64_t groups = outer * plan.tiles;
  const std::int64_t parts = plan.blocks_loaded ? std::min(kMaxSteps * rows / plan.chunk, groups * plan.strips / (4 * sms)) : 1;
  plan.split = ceil_div(plan.strips, std::clamp<std::int64_t>(parts, 1, plan.strips));
  plan.per_block = ceil_div(plan.strips, plan.split);
  plan.split = ceil_div(plan.strips, plan.per_block);
  plan.blocks = groups * plan.split;
  plan.early = plan.blocks_loaded && plan.blocks <= sms;
}

/// Elements that a lane loads at once and adds as a tree.
constexpr std::int64_t kPerLane = 8;

/// Short rows whose elements are not neighbours, loaded one at a time: by up to a warp's lanes.
void plan_elements(Plan& plan) {
  constexpr std::int64_t kWarp = 32;
  plan.kernel = Kernel::elements;
  plan.threads = static_cast<int>(kThreads);
  plan.lanes = static_cast<int>(std::min(round_up_pow2(ceil_div(plan.length, kPerLane)), kWarp));
  plan.per_block = kThreads / plan.lanes;
  plan.blocks = ceil_div(plan.outputs, plan.per_block);
}

/// Are all strides whole vectors?
bool in_vectors(DimList& list, std::int64_t width) {
  return std::all_of(list.begin(), list.end(), [&](const Dim& d) { return d.strides[kIn] % width == 0; });
}

/// The most positions of many short columns: measured, and the trees' states of a CTA's least lanes fit kMostStateBytes.
std::int64_t most_short_positions(const Plan& plan) {
  const State state = state_of(plan.kind);
  const auto bytes = static_cast<std::int64_t>(state_bytes(state, plan.in));
  return kShortColumnTree * (state == State::index ? 128 : bytes <= 4 ? 96 : 512 / bytes);
}

/// A thread a vector of columns, a column, or several threads (teams) either: as few as fill the GPU, all with the same bits.
void plan_short_columns(Plan& plan, DimList& kept, DimList& gone, std::int64_t width, std::uintptr_t address, int sm_count) {
  constexpr std::int64_t kThreads = 128, kMostStateBytes = 32 << 10, kFewTrees = 8, kLine = 128, kWarp = 32;
  // Threads of an SM that keep 32 KB in flight, eight loads each, need no help; teams make four times as many, as far as an SM
  // holds them.
  constexpr std::int64_t kEnoughBytes = 4096, kTimes = 4, kResident = 2048;
  const std::int64_t trees = ceil_div(plan.length, std::int64_t{kShortColumnTree}), sms = std::max(sm_count, 1),
                     element = 16 / width, result_bytes = static_cast<std::int64_t>(size_of(plan.out));
  bool in_order = true;  // the outputs lie as the vectors do
  std::int64_t next = 1;
  for (std::size_t d = kept.count; d-- > 0; next *= kept.dims[d].size) in_order &= kept.dims[d].strides[kOut] == next;
  Dim tile = kept.back();
  kept.pop_back();
  plan.kernel = Kernel::short_columns;
  // With few elements in all, single ones occupy more SMs.
  if ((trees > kFewTrees || plan.outputs * trees > 1024 * sms) && takes_column_vectors(size_of(plan.in)) && in_order &&
      tile.strides[kIn] == 1 && result_bytes % element == 0)
    for (std::int64_t w = 4; w <= width; w *= 2)
      if (tile.size % w == 0 && static_cast<std::int64_t>(address) % (w * element) == 0 && in_vectors(kept, w) &&
          in_vectors(gone, w))
        plan.width = static_cast<int>(w);
  plan.vector = plan.width > 1;
  plan.result_bytes = static_cast<std::uint8_t>(result_bytes);
  if (plan.vector) {
    tile.size /= plan.width;
    tile.strides[kIn] = plan.width;
  }
  kept.push_back(tile);
  const std::int64_t load = plan.width * element, units = plan.outputs / plan.width, enough = kEnoughBytes / load * sms,
                     least_lanes = std::min(kLine / load, kWarp);
  std::int64_t teams = 1, lanes = kThreads;
  if (units < enough) {
    const std::int64_t wanted = ceil_div(std::min(kTimes * enough, kResident * sms), units),
                       most = most_short_column_threads(static_cast<std::size_t>(load)) / least_lanes;
    teams = ceil_div(trees, ceil_div(trees, std::min({wanted, trees, most})));  // as few as need no more rounds
  }
  plan.strips = teams == 1 ? 1 : state_of(plan.kind) == State::index ? teams : trees;
  const std::int64_t bytes = plan.strips * plan.width * static_cast<std::int64_t>(part_bytes(plan, width));
  while (lanes > least_lanes && (lanes * teams > kThreads || (teams > 1 && lanes * bytes > kMostStateBytes))) lanes /= 2;
  plan.lanes = static_cast<int>(lanes);
  plan.threads = static_cast<int>(lanes * teams);
  plan.per_block = lanes;
  plan.blocks = ceil_div(units, lanes);
}

/// The element that does not change an operator's result, repeated over 16 bytes.
void fill_padding(Plan& plan) {
  if (state_of(plan.kind) == State::sum) return;
  if (state_of(plan.kind) == State::mean_loss) {  // -0
    plan.fill[1] = plan.fill[3] = 0x80000000;
    if (plan.in == DType::f32) plan.fill[0] = plan.fill[2] = 0x80000000;
    return;
  }
  const bool low = plan.kind != Kind::amin && plan.kind != Kind::argmin;
  std::uint64_t bits = 0;
  switch (plan.in) {
    case DType::f32: bits = low ? 0xff800000 : 0x7f800000; break;
    case DType::f16: bits = low ? 0xfc00 : 0x7c00; break;
    case DType::bf16: bits = low ? 0xff80 : 0x7f80; break;
    case DType::f64: bits = low ? 0xfff0000000000000 : 0x7ff0000000000000; break;
    case DType::i64: bits = low ? 0x8000000000000000 : 0x7fffffffffffffff; break;
    case DType::i32: bits = low ? 0x80000000 : 0x7fffffff; break;
    case DType::i16: bits = low ? 0x8000 : 0x7fff; break;
    case DType::i8: bits = low ? 0x80 : 0x7f; break;
    case DType::u8:
    case DType::boolean: bits = low ? 0x00 : 0xff; break;
  }
  for (std::size_t width = size_of(plan.in) * 8; width < 64; width *= 2) bits |= bits << width;
  for (int i = 0; i < 4; ++i) plan.fill[i] = static_cast<std::uint32_t>(bits >> (i % 2 * 32));
}

}  // namespace

State state_of(Kind kind) {
  switch (kind) {
    case Kind::sum:
    case Kind::mean: return State::sum;
    case Kind::amax:
    case Kind::amin: return State::maximum;
    case Kind::argmax:
    case Kind::argmin: return State::index;
    case Kind::cross_entropy: return State::cross_entropy;
    case Kind::smooth_cross_entropy: return State::smooth_cross_entropy;
    case Kind::mean_loss: return State::mean_loss;
    default: return State::logsumexp;
  }
}

std::size_t state_bytes(State state, DType dtype) {
  const bool wide = dtype == DType::f64 || dtype == DType::i64;
  switch (state) {
    case State::sum: return wide || !is_floating(dtype) ? 8 : 4;
    case State::maximum: return wide ? 8 : 4;
    case State::index: return 16;
    case State::smooth_cross_entropy: return wide ? 32 : 16;
    default: return wide ? 16 : 8;
  }
}

bool converts_on_load(Kind kind, DType from, DType to) {
  if (from == to || kind == Kind::amax || kind == Kind::amin || kind == Kind::argmax || kind == Kind::argmin) return true;
  if (is_half(from)) return to == DType::f32;
  if (is_floating(from) || is_floating(to)) return false;
  return to != DType::boolean;  // integers are added in int64 and wrap when stored, which is the same as wrapping each of them
}

Plan make_plan(const char* op, Kind kind, const Source& source, std::uint64_t reduced, DType out, const DeviceProperties& gpu) {
  Plan plan{.kind = kind, .kernel = Kernel::rows, .in = source.dtype, .out = out};
  const std::size_t rank = source.sizes.size();
  check(rank <= kMaxRank, op, "expected input of at most ", kMaxRank, " dims, got ", rank);
  DimList kept, gone;
  std::int64_t out_step = 1;
  std::array<std::int64_t, kMaxRank> out_strides;
  for (std::size_t d = rank; d-- > 0;)
    if (!(reduced >> d & 1)) {
      out_strides[d] = out_step;
      out_step *= source.sizes[d];
    }
  bool empty = false;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = source.sizes[d];
    const bool is_reduced = reduced >> d & 1;
    empty |= size == 0 && is_reduced;
    if (size == 1 || size == 0) continue;
    (is_reduced ? gone : kept).push_back({size, {source.strides[d], is_reduced ? 0 : out_strides[d]}});
  }
  sort_by_stride(kept);
  merge(kept);
  // argmax returns an index in logical order, so its dims keep that order.
  if (state_of(kind) != State::index) sort_by_stride(gone);
  merge(gone);
  if (empty) gone.clear();  // no run of the other reduced dims may be read
  plan.outputs = kept.product();
  plan.length = empty ? 0 : gone.product();

  const auto width = static_cast<std::int64_t>(16 / size_of(source.dtype));
  std::int64_t inner = INT64_MAX;
  for (const Dim& d : gone)
    if (d.strides[kIn] != 0) inner = std::min(inner, d.strides[kIn]);
  plan.last = 0;
  for (const Dim& d : gone) plan.last += (d.size - 1) * d.strides[kIn];
  for (const Dim& d : kept) plan.last += (d.size - 1) * d.strides[kIn];
  if (plan.length == 1 && !empty && copies(kind)) {
    plan.kernel = Kernel::copy;
    fill_map(op, plan.kept, kept);
    return plan;
  }

  // A tile of fewer elements would leave most of a CTA idle; then one thread or a few compute an output, as for rows.
  constexpr std::int64_t kMinTile = 2048;
  const State state = state_of(kind);
  const bool folds = state == State::sum || state == State::maximum || state == State::index || state == State::logsumexp;
  const bool run = folds && gone.count > 1 && gone.back().strides[kIn] == 1 && state != State::index;  // an inner and outer dims
  const std::int64_t longest = (std::min<std::int64_t>(most_fold_lanes(plan, width), 32) - 1) * width;
  // Short runs side by side in memory: each element of them is a column, and the columns of a run are joined at the end.
  const bool folded = run && !kept.empty() && kept.back().strides[kIn] == gone.back().size && gone.back().size <= longest &&
                      plan.length * kept.back().size >= kMinTile;
  const bool side_by_side = plan.length > 1 && !kept.empty() && kept.back().strides[kIn] != 0 && kept.back().strides[kIn] < inner;
  const bool fills_tile = side_by_side && plan.length * kept.back().size >= kMinTile;
  // Few positions use a fraction of the column kernel's threads. Elements of 8 bits would be many accesses of one byte.
  constexpr std::int64_t kPositions = 32, kManyColumns = 512, kFew = 1 << 17;
  const bool of_many = kept.count > 0 && kept.back().size >= kManyColumns;
  const std::int64_t most = !side_by_side ? 0 : of_many ? most_short_positions(plan) : fills_tile ? kPositions : kPerLane;
  const bool serves = side_by_side && folds && !folded && width < 16,
             short_columns = serves && gone.count == 1 && plan.length <= most;
  // With several reduced dims only where the launch waits for its instructions.
  const bool few_columns = serves && gone.count > 1 && plan.length <= kPerLane && plan.length * kept.back().size <= kFew;
  const bool columns = folded || (fills_tile && !short_columns && !few_columns);
  const bool misaligned = reinterpret_cast<std::uintptr_t>(source.data) % 16 != 0;
  if (columns) {
    const Dim tile = kept.back();
    kept.pop_back();
    plan.run = folded ? gone.back().size : 1;
    if (folded) gone.pop_back();
    plan.columns = tile.size * plan.run;
    plan.positions = plan.length / plan.run;
    plan.column_stride = folded ? 1 : tile.strides[kIn];
    plan.column_out = tile.strides[kOut];
    plan.column_outputs = tile.size;
    plan.vector = plan.column_stride == 1;
    plan.aligned =
        plan.vector && gone.count == 1 && plan.columns % width == 0 && in_vectors(gone, width) && in_vectors(kept, width);
    if (folds && plan.vector && gone.count == 1 && gone.back().strides[kIn] == plan.columns) {
      Dim& dim = gone.back();
      plan.repeat = static_cast<int>(repeat_of(plan, plan.columns, dim.size, width));
      plan.positions = ceil_div(dim.size, plan.repeat);
      plan.cut = (dim.size - (plan.positions - 1) * plan.repeat) * plan.columns;
      plan.columns *= plan.repeat;
      dim = {plan.positions, {plan.columns, 0}};
    } else {
      plan.cut = plan.columns;
    }
    plan_columns(plan, kept.product(), width, gone.count == 1 ? gone.back().strides[kIn] : 0, misaligned, gpu);
  } else if (short_columns) {
    plan_short_columns(plan, kept, gone, width, reinterpret_cast<std::uintptr_t>(source.data), gpu.sm_count);
  } else {
    const bool strips = run && gone.back().size > longest && (source.dtype == DType::f32 || is_half(source.dtype));
    plan.vector = !gone.empty() && gone.back().strides[kIn] == 1 && (gone.count == 1 || strips || gone.back().size % width == 0);
    plan.run = strips ? gone.back().size : plan.length;
    plan.vectors = ceil_div(plan.run, width);
    plan.full = plan.vector ? plan.run / width : 0;
    if (strips) plan.pieces = ceil_div(plan.vectors, kStrip);
    if (!plan.vector && plan.length > 1 && plan.length <= kLongestElements)
      plan_elements(plan);
    else
      plan_rows(plan, gpu);
  }
  check(plan.blocks <= INT32_MAX, op, "expected a problem of fewer than 2^31 CTAs, got ", plan.blocks);
  fill_map(op, plan.reduced, gone);
  fill_map(op, plan.kept, kept);
  fill_padding(plan);

  if (columns ? plan.strips > 1 : plan.split > 1 && plan.cluster == 1) {
    const std::int64_t groups = plan.blocks / plan.split;
    const std::int64_t states = columns        ? groups * plan.strips * plan.results
                                : plan.grouped ? plan.blocks
                                               : plan.outputs * plan.strips;
    if (plan.split > 1) plan.counter_bytes = static_cast<std::size_t>(ceil_div(groups * 4, 256) * 256);
    plan.workspace_bytes = plan.counter_bytes + static_cast<std::size_t>(states) * state_bytes(state_of(kind), source.dtype);
  }
  return plan;
}

ContiguousMap contiguous_map(const char* op, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides,
                             std::span<const std::int64_t> out) {
  DimList list;
  ContiguousMap result{.map = {}, .count = 1};
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    result.count *= sizes[d];
    if (sizes[d] > 1) list.push_back({sizes[d], strides[d], out.empty() ? 0 : out[d]});
  }
  merge(list);
  fill_map(op, result.map, list);
  return result;
}

}  // namespace xgemm::reduce
