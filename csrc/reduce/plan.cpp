#include "reduce/plan.h"

#include <algorithm>

#include "device/environment.h"
#include "device/integer.h"
#include "reduce/column_plan.h"

namespace xgemm::reduce {

namespace {

constexpr std::int64_t kThreads = 256, kWarp = 32;
constexpr std::int64_t kLongestElements = 2048;  ///< of a row that one warp reads one at a time

/// Is the result of one element the element itself (argmax: a zero)?
bool copies(Kind kind) {
  const State state = state_of(kind);
  return state == State::sum || state == State::maximum || state == State::index || kind == Kind::logsumexp;
}

/// Does XGEMM_REDUCE_WITHOUT name the kernel? It leaves kernels out, to measure what they are worth.
bool left_out(std::string_view kernel) { return environment("XGEMM_REDUCE_WITHOUT").find(kernel) != std::string_view::npos; }

/// The row's length alone decides the strips. How many strips (or short rows) a CTA takes also depends on the number of rows.
void plan_rows(Plan& plan, const DeviceProperties& gpu) {
  constexpr std::int64_t kWarps = kThreads / kWarp, kStep = kWarp * kUnroll, kFewLanes = 8;
  constexpr std::int64_t kGrouped = 1 << 20, kLongestStrip = 4096, kGroups = 512, kMaxRowsPerTeam = 8, kMaxStrips = 4096;
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
    const std::int64_t lanes = round_up_pow2(ceil_div(in_steps, std::int64_t{kUnroll}));
    const bool through_shared = size_of(plan.in) == 2 && plan.full == vectors && vectors >= kLeastBulk && vectors <= kMostBulk;
    // If a row's fixed cost is small, small pieces are faster in shared memory.
    const std::int64_t steps = through_shared && plan.kind == Kind::logsumexp ? 2 : 4;
    plan.lanes = static_cast<int>(
        several ? std::clamp(round_up_pow2(ceil_div(in_steps, steps * kUnroll)), std::min(lanes, kFewLanes), kWarp)
                : std::min(lanes, kWarp));
    plan.bulk =
        !left_out("bulk_rows") && gpu.major == 9 && through_shared && plan.outputs * vectors >= kManyVectors * gpu.sm_count;
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
  plan.chunk = kStrip;
  if (long_strips) {  // whole waves of CTAs
    const std::int64_t warps_at_once = resident * kWarps, waves = ceil_div(vectors, warps_at_once * kLongestStrip);
    plan.chunk = round_up(ceil_div(vectors, warps_at_once * waves), kWarp);
  }
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

/// After plan_rows: few rows whose lanes would take several steps in turn become rows whose steps have lanes of their own, if all
/// of them fit the GPU at a time. The order of additions is the same.
void plan_row_steps(Plan& plan, bool one_run, const DeviceProperties& gpu) {
  constexpr std::int64_t kRowsPerSm = 2, kThreadsPerSm = 1024;
  const State state = state_of(plan.kind);
  const std::int64_t steps = ceil_div(plan.full, std::int64_t{kUnroll} * plan.lanes),
                     threads = round_up(steps * plan.lanes, kWarp);
  if ((state != State::sum && state != State::maximum) || left_out("row_steps")) return;
  if (!plan.vector || !one_run || (plan.in != DType::f32 && !is_half(plan.in)) || steps < 2 || steps > kMostRowSteps) return;
  if (plan.outputs > kRowsPerSm * gpu.sm_count || plan.outputs * threads > kThreadsPerSm * gpu.sm_count) return;
  plan.kernel = Kernel::row_steps;
  plan.threads = static_cast<int>(threads);
  plan.per_block = plan.split = plan.cluster = 1;
  plan.blocks = plan.outputs;
}

/// Rows whose elements are loaded one at a time, by up to `most` lanes of a tree each: a power of two of them, or whole warps.
void plan_elements(Plan& plan, std::int64_t most) {
  const std::int64_t trees = ceil_div(plan.length, std::int64_t{kElementTree});
  plan.kernel = Kernel::elements;
  plan.lanes = static_cast<int>(std::min(trees <= kWarp ? round_up_pow2(trees) : round_up(trees, kWarp), most));
  plan.per_block = kElementThreads / plan.lanes;
  plan.threads = static_cast<int>(plan.per_block) * plan.lanes;
  plan.blocks = ceil_div(plan.outputs, plan.per_block);
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
  const std::int64_t group = kept.empty() ? 0 : plan.length * kept.back().size;  // elements of neighbouring columns
  const bool run = folds && gone.count > 1 && gone.back().strides[kIn] == 1 && state != State::index;  // an inner and outer dims
  const std::int64_t longest = (std::min<std::int64_t>(most_fold_lanes(plan, width), 32) - 1) * width;
  // Short runs side by side in memory: each element of them is a column, and the columns of a run are joined at the end.
  const bool folded =
      run && !kept.empty() && kept.back().strides[kIn] == gone.back().size && gone.back().size <= longest && group >= kMinTile;
  const bool side_by_side = plan.length > 1 && !kept.empty() && kept.back().strides[kIn] != 0 && kept.back().strides[kIn] < inner;
  const bool fills_tile = side_by_side && group >= kMinTile;
  // Few positions use a fraction of the column kernel's threads. Elements of 8 bits would be many accesses of one byte.
  constexpr std::int64_t kPositions = 32, kManyColumns = 512, kFew = 1 << 17;
  const bool of_many = kept.count > 0 && kept.back().size >= kManyColumns;
  const std::int64_t most = !side_by_side ? 0 : of_many ? most_short_positions(plan) : fills_tile ? kPositions : kElementTree;
  const bool serves = side_by_side && folds && !folded && width < 16,
             short_columns = serves && !left_out("short_columns") && gone.count == 1 && plan.length <= most;
  // With several reduced dims only where the launch waits for its instructions.
  const bool few_columns = serves && !left_out("few_columns") && gone.count > 1 && plan.length <= kElementTree && group <= kFew;
  // In a small tile most threads of the column kernel would hold a vector or none, and all of them wait at its joins. Elements of
  // 8 bytes gain too little for a large batch to be as fast.
  constexpr std::int64_t kSmallTile = 3584, kNarrow = 8, kNarrowTile = 6144, kLongestOfFew = 4096;
  // An extremum is the same in any order, so that its tile may be larger where there are few.
  const bool few_tiles =
      (state == State::maximum || state == State::index) && plan.length <= kLongestOfFew && plan.outputs * plan.length <= kFew;
  const bool small_tile = !left_out("small_tile") && (folded || fills_tile) && folds && !short_columns &&
                          (width == 4 || width == 8) &&
                          (few_tiles || group <= (kept.back().size <= kNarrow ? kNarrowTile : kSmallTile));
  const bool columns = !small_tile && (folded || (fills_tile && !short_columns && !few_columns));
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
  } else if (small_tile) {
    plan_elements(plan, kElementThreads);
  } else if (short_columns) {
    plan_short_columns(plan, kept, gone, width, reinterpret_cast<std::uintptr_t>(source.data), gpu.sm_count);
  } else {
    const bool strips = run && gone.back().size > longest && (source.dtype == DType::f32 || is_half(source.dtype));
    plan.vector = !gone.empty() && gone.back().strides[kIn] == 1 && (gone.count == 1 || strips || gone.back().size % width == 0);
    plan.run = strips ? gone.back().size : plan.length;
    plan.vectors = ceil_div(plan.run, width);
    plan.full = plan.vector ? plan.run / width : 0;
    if (strips) plan.pieces = ceil_div(plan.vectors, kStrip);
    if (!plan.vector && plan.length > 1 && plan.length <= kLongestElements && !left_out("elements")) {
      plan_elements(plan, kWarp);
    } else {
      plan_rows(plan, gpu);
      plan_row_steps(plan, gone.count == 1, gpu);
    }
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
