#include "reduce/plan.h"

#include <algorithm>
#include <array>

#include "device/integer.h"
#include "torch/error.h"

namespace xgemm::reduce {

namespace {

struct Dim {
  std::int64_t size, stride, out;
};

struct DimList {
  std::array<Dim, kMaxRank> dims;
  int count = 0;

  void push(const Dim& d) { dims[static_cast<std::size_t>(count++)] = d; }
  Dim* begin() { return dims.data(); }
  Dim* end() { return dims.data() + count; }
  Dim& last() { return dims[static_cast<std::size_t>(count - 1)]; }
  std::int64_t product() {
    std::int64_t n = 1;
    for (const Dim& d : *this) n *= d.size;
    return n;
  }
};

/// Outermost first; expanded dims (stride 0) outermost of all, so that neighbours in memory are neighbours in the list.
void sort_by_stride(DimList& list) {
  const auto rank = [](const Dim& d) { return d.stride == 0 ? INT64_MAX : d.stride; };
  for (Dim* d = list.begin(); d != list.end(); ++d)  // a few dims: std::stable_sort would ask for memory
    for (Dim* e = d; e != list.begin() && rank(e[-1]) < rank(*e); --e) std::swap(e[-1], *e);
}

/// Joins a dim to the one outside it where both are steps of one run, in input and output.
void merge(DimList& list) {
  const int count = list.count;
  list.count = 0;
  for (int i = 0; i < count; ++i) {
    const Dim d = list.dims[static_cast<std::size_t>(i)];
    if (list.count > 0 && list.last().stride == d.stride * d.size && list.last().out == d.out * d.size)
      list.last() = {list.last().size * d.size, d.stride, d.out};
    else
      list.push(d);
  }
}

void fill_map(const char* op, IndexMap& map, DimList& list) {
  check(list.count <= IndexMap::kMaxDims, op, "expected at most ", IndexMap::kMaxDims, " dims that cannot be merged, got ",
        list.count);
  map.dims = list.count;
  for (int i = 0; i < list.count; ++i) {
    const Dim& d = list.dims[static_cast<std::size_t>(i)];
    if (i > 0) map.size[i] = Divider::of(d.size);
    map.stride[i] = d.stride;
    map.out[i] = d.out;
  }
}

// Both kernels keep four 16-byte loads per thread in flight.
constexpr std::int64_t kUnroll = 4;
constexpr std::int64_t kThreads = 256;

/// The row's length alone decides the strips. How many strips (or short rows) a CTA takes also depends on the number of rows.
void plan_rows(Plan& plan, const DeviceProperties& gpu) {
  constexpr std::int64_t kStrip = 512, kWarp = 32, kWarps = kThreads / kWarp, kStep = kWarp * kUnroll, kFewLanes = 8;
  constexpr std::int64_t kGrouped = 1 << 20, kMinGroup = 4096, kMaxGroup = 32768, kGroups = 512, kMaxRowsPerTeam = 8;
  constexpr std::int64_t kLeastBulk = 65, kMostBulk = 256, kManyVectors = 4096, kCluster = 8, kMaxCluster = 16;
  const std::int64_t resident = 4 * std::max(gpu.sm_count, 1);  // blocks at a time
  const std::int64_t vectors = plan.vectors;
  plan.kernel = Kernel::rows;
  if (vectors <= kStrip) {
    plan.chunk = std::max<std::int64_t>(vectors, 1);
    plan.threads = static_cast<int>(kThreads);
    // The elements of an incomplete last vector go to one lane each. The rows of a warp share the fixed cost of a row, so 16-bit
    // rows, and fp32 rows that are not whole vectors, have up to four steps per lane, but at least eight lanes.
    const std::int64_t in_steps = plan.vector ? std::max<std::int64_t>(plan.full, 1) : plan.chunk;
    const bool several = size_of(plan.in) == 2 || (plan.in == DType::f32 && plan.full < plan.vectors);
    const std::int64_t lanes = round_up_pow2(ceil_div(in_steps, kUnroll));
    const bool through_shared = size_of(plan.in) == 2 && plan.full == vectors && vectors >= kLeastBulk && vectors <= kMostBulk;
    // Where a row's fixed cost is small, small pieces are faster in shared memory.
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
  plan.grouped = vectors > kGrouped;
  // The mean of losses is a single row that nothing overlaps: the warps of a cluster take as few steps each as possible.
  constexpr std::int64_t kMostWarps = kMaxCluster * kWarps;
  const bool waited_for = plan.kind == Kind::mean_loss && vectors <= kMostWarps * kStrip;
  plan.chunk = plan.grouped ? std::clamp(round_up_pow2(vectors / kGroups), kMinGroup, kMaxGroup) / kWarps : kStrip;
  if (waited_for) plan.chunk = ceil_div(ceil_div(vectors, kMostWarps), kStep) * kStep;
  plan.strips = plan.per_block = ceil_div(vectors, plan.chunk);
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
    warps = plan.per_block = kWarps;
  } else if (plan.strips > kWarps && (plan.outputs < resident || plan.strips > kMaxStates)) {
    warps = kWarps;
    const std::int64_t share = ceil_div(plan.strips * plan.outputs, 4 * resident);  // half a block's warps where rows are few
    plan.per_block =
        waited_for ? kWarps
                   : std::min({share <= kWarps / 2 ? kWarps / 2 : ceil_div(share, kWarps) * kWarps, plan.strips, kMaxStates});
  }
  plan.threads = static_cast<int>(warps * kWarp);
  plan.split = ceil_div(plan.strips, plan.per_block);
  if (gpu.major == 9 && !plan.grouped && plan.split <= (waited_for ? kMaxCluster : kCluster))
    plan.cluster = static_cast<int>(plan.split);
  plan.blocks = plan.outputs * plan.split;
}

/// Bytes that a thread of the column kernel keeps for a column's maximum within its CTA: value and position.
constexpr std::size_t index_part_bytes(std::int64_t width) { return width >= 8 ? 4 : width == 4 ? 8 : 16; }

/// A tile of `lanes` 16-byte columns and threads / lanes positions at a time. `outer`: kept groups of columns; `stride`: of the
/// reduced dim, 0 where there are several; `misaligned`: of the base. The misalignment may decide only which thread reads which
/// element.
void plan_columns(Plan& plan, std::int64_t outer, std::int64_t width, std::int64_t stride, bool misaligned,
                  const DeviceProperties& gpu) {
  constexpr std::int64_t kMinSteps = 8, kMaxSteps = 128, kManyTilesPerSm = 32, kWarp = 32;
  const bool index = state_of(plan.kind) == State::index;
  const std::size_t part = index ? index_part_bytes(width) : state_bytes(state_of(plan.kind), plan.in);
  const std::int64_t threads = column_threads(part, static_cast<std::size_t>(width)), sms = std::max(gpu.sm_count, 1);
  plan.kernel = Kernel::columns;
  plan.threads = static_cast<int>(threads);
  // 8-bit elements: 16 states a thread; half as many lanes keep as many positions side by side.
  const std::int64_t most = width == 16 ? kWarp / 2 : kWarp, vectors = ceil_div(plan.columns, width);
  // Unaligned rows need one more 16-byte block.
  const bool runs = plan.vector && stride >= width;
  std::int64_t lanes = std::min(most, round_up_pow2(vectors + (runs && !plan.aligned ? 1 : 0)));
  // With very many columns a CTA takes kilobytes side by side, and few states are left to join.
  while (width < 16 && lanes < threads && ceil_div(vectors, 2 * lanes) >= kManyTilesPerSm * sms) lanes *= 2;
  const bool many = lanes > kWarp;
  plan.lanes = static_cast<int>(lanes);
  const std::int64_t rows = threads / lanes;
  plan.tiles = ceil_div(vectors, lanes);
  // One wave of CTAs if each then gets few steps: as many per SM as fit, but one for 16-bit elements, which leaves fewer
  // partial results and reads fewer rows at once. Else waves of at most kMaxSteps steps.
  const std::int64_t blocks = (threads == 256 ? 3 : width == 8 ? 1 : 2) * sms;
  std::int64_t steps = std::max(ceil_div(plan.length * plan.tiles, rows * blocks), kMinSteps);
  if (steps > kMaxSteps && plan.tiles > sms) steps = kMaxSteps;
  if (many) steps = ceil_div(plan.length, rows);
  plan.chunk = ceil_div(steps, kUnroll) * kUnroll * rows;
  if (index) plan.chunk = std::min(plan.chunk, width >= 8 ? kKeyPositions : kPartPositions);
  plan.split = std::max<std::int64_t>(ceil_div(plan.length, plan.chunk), 1);
  // Where all positions of a thread have the same misalignment it reads aligned blocks, one more than the tile has vectors. The
  // order of additions is the same.
  const bool moved = runs && (!plan.aligned || misaligned) && rows * stride % width == 0 && (vectors < lanes || lanes >= most);
  plan.span = static_cast<int>(moved ? lanes - 1 : lanes);
  plan.tiles = ceil_div(vectors, plan.span);
  plan.blocks = outer * plan.tiles * plan.split;
}

/// The element that leaves an operator's result as it is, repeated over 16 bytes.
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
    (is_reduced ? gone : kept).push({size, source.strides[d], is_reduced ? 0 : out_strides[d]});
  }
  sort_by_stride(kept);
  merge(kept);
  // argmax returns an index in logical order, so its dims keep that order.
  if (state_of(kind) != State::index) sort_by_stride(gone);
  merge(gone);
  plan.outputs = kept.product();
  plan.length = empty ? 0 : gone.product();

  const auto width = static_cast<std::int64_t>(16 / size_of(source.dtype));
  const auto bytes = static_cast<std::int64_t>(size_of(source.dtype));
  std::int64_t inner = INT64_MAX;
  for (const Dim& d : gone)
    if (d.stride != 0) inner = std::min(inner, d.stride);
  // A tile of fewer elements would leave most of a CTA idle; then one thread or a few compute an output, as for rows.
  constexpr std::int64_t kMinTile = 2048;
  const bool columns = plan.length > 1 && kept.count > 0 && kept.last().stride != 0 && kept.last().stride < inner &&
                       plan.length * kept.last().size >= kMinTile;
  fill_map(op, plan.reduced, gone);
  if (columns) {
    const Dim tile = kept.last();
    --kept.count;
    plan.columns = tile.size;
    plan.column_stride = tile.stride;
    plan.column_out = tile.out;
    plan.vector = tile.stride == 1;
    plan.aligned = plan.vector && gone.count == 1 && tile.size % width == 0;
    for (const Dim& d : gone) plan.aligned &= d.stride * bytes % 16 == 0;
    for (const Dim& d : kept) plan.aligned &= d.stride * bytes % 16 == 0;
    plan.last = (tile.size - 1) * tile.stride;
    for (const Dim& d : gone) plan.last += (d.size - 1) * d.stride;
    for (const Dim& d : kept) plan.last += (d.size - 1) * d.stride;
    const bool misaligned = reinterpret_cast<std::uintptr_t>(source.data) % 16 != 0;
    plan_columns(plan, kept.product(), width, gone.count == 1 ? gone.last().stride : 0, misaligned, gpu);
  } else {
    plan.vector = gone.count > 0 && gone.last().stride == 1 && (gone.count == 1 || gone.last().size % width == 0);
    plan.vectors = ceil_div(plan.length, width);
    plan.full = plan.vector ? plan.length / width : 0;
    plan_rows(plan, gpu);
  }
  fill_map(op, plan.kept, kept);
  fill_padding(plan);

  if (plan.split > 1 && plan.cluster == 1) {
    const std::int64_t groups = plan.blocks / plan.split;
    const std::int64_t states = columns        ? plan.blocks * plan.lanes * width
                                : plan.grouped ? plan.blocks
                                               : plan.outputs * plan.strips;
    plan.counter_bytes = static_cast<std::size_t>(ceil_div(groups * 4, 256) * 256);
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
    if (sizes[d] > 1) list.push({sizes[d], strides[d], out.empty() ? 0 : out[d]});
  }
  merge(list);
  fill_map(op, result.map, list);
  return result;
}

}  // namespace xgemm::reduce
