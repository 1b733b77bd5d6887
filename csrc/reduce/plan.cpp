#include "reduce/plan.h"

#include <algorithm>
#include <array>

#include "torch/error.h"

namespace xgemm::reduce {

namespace {

constexpr int kMaxRank = 64;

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
  std::stable_sort(list.begin(), list.end(), [](const Dim& a, const Dim& b) {
    return (a.stride == 0 ? INT64_MAX : a.stride) > (b.stride == 0 ? INT64_MAX : b.stride);
  });
}

/// Joins a dim to the one outside it where both are steps of one run, in input and output.
void merge(DimList& list) {
  DimList out;
  for (const Dim& d : list) {
    if (out.count > 0 && out.last().stride == d.stride * d.size && out.last().out == d.out * d.size)
      out.last() = {out.last().size * d.size, d.stride, d.out};
    else
      out.push(d);
  }
  list = out;
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

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up_pow2(std::int64_t n) {
  std::int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

// Both kernels keep four 16-byte loads a thread in flight.
constexpr std::int64_t kUnroll = 4;
constexpr int kThreads = 256;

/// Threads a row and blocks a row, by the row's length alone. `vectors`: 16-byte vectors of a row.
void plan_rows(Plan& plan, std::int64_t vectors) {
  constexpr std::int64_t kWarpVectors = 512, kBlockVectors = 2048, kWideVectors = 8192;
  constexpr std::int64_t kMinChunk = 2048, kMaxChunk = 16384, kChunks = 512;
  plan.kernel = Kernel::rows;
  plan.threads = kThreads;
  if (vectors <= kWarpVectors) {
    plan.lanes = static_cast<int>(std::min<std::int64_t>(32, round_up_pow2(ceil_div(std::max<std::int64_t>(vectors, 1), kUnroll))));
  } else if (vectors <= kBlockVectors) {
    plan.lanes = kThreads;
  } else if (vectors <= kWideVectors) {
    plan.lanes = plan.threads = 2 * kThreads;
  } else {
    plan.lanes = kThreads;
    plan.chunk = std::clamp(round_up_pow2(vectors / kChunks), kMinChunk, kMaxChunk);
    plan.split = ceil_div(vectors, plan.chunk);
  }
  if (plan.split == 1) plan.chunk = std::max<std::int64_t>(vectors, 1);
  plan.blocks = plan.split > 1 ? plan.outputs * plan.split : ceil_div(plan.outputs, plan.threads / plan.lanes);
}

/// A tile of `lanes` 16-byte columns and kThreads / lanes positions at a time. `outer`: kept groups of columns.
void plan_columns(Plan& plan, std::int64_t outer, std::int64_t width, const DeviceProperties& gpu) {
  constexpr std::int64_t kMinSteps = 8, kMaxSteps = 64, kBlocksPerSm = 4, kMaxSplitPerSm = 2;
  plan.kernel = Kernel::columns;
  plan.threads = kThreads;
  // 8-bit elements: 16 states a thread; half as many lanes keep the block's partial results within 48 KiB of shared memory.
  const std::int64_t most = width == 16 ? 16 : 32, sms = std::max(gpu.sm_count, 1);
  plan.lanes = static_cast<int>(std::min(most, round_up_pow2(ceil_div(plan.columns, width))));
  const std::int64_t rows = kThreads / plan.lanes;
  plan.tiles = ceil_div(plan.columns, plan.lanes * width);
  std::int64_t steps = std::clamp(plan.length * plan.tiles / (rows * kBlocksPerSm * sms), kMinSteps, kMaxSteps);
  steps = std::max(steps, ceil_div(plan.length, rows * kMaxSplitPerSm * sms));
  plan.chunk = ceil_div(steps, kUnroll) * kUnroll * rows;
  plan.split = std::max<std::int64_t>(ceil_div(plan.length, plan.chunk), 1);
  plan.blocks = outer * plan.tiles * plan.split;
}

/// The element that leaves an operator's result as it is, repeated over 16 bytes.
void fill_padding(Plan& plan) {
  if (state_of(plan.kind) == State::sum) return;
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
    default: return State::logsumexp;
  }
}

std::size_t state_bytes(State state, DType dtype) {
  const bool wide = dtype == DType::f64 || dtype == DType::i64;
  switch (state) {
    case State::sum: return wide || !is_floating(dtype) ? 8 : 4;
    case State::maximum: return wide ? 8 : 4;
    case State::index: return 16;
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
  DimList kept, gone;
  std::int64_t out_step = 1;
  std::array<std::int64_t, kMaxRank> out_strides{};
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
  // The index that argmax returns counts in logical order, so its dims stay in that order.
  if (state_of(kind) != State::index) sort_by_stride(gone);
  merge(gone);
  plan.outputs = kept.product();
  plan.length = empty ? 0 : gone.product();

  const auto width = static_cast<std::int64_t>(16 / size_of(source.dtype));
  const auto bytes = static_cast<std::int64_t>(size_of(source.dtype));
  std::int64_t inner = INT64_MAX;
  for (const Dim& d : gone)
    if (d.stride != 0) inner = std::min(inner, d.stride);
  // A tile of fewer elements would leave most of a block idle; then a thread or a few take an output each, as for rows.
  constexpr std::int64_t kMinTile = 2048;
  const bool columns = plan.length > 1 && kept.count > 0 && kept.last().stride != 0 && kept.last().stride < inner &&
                       plan.length * kept.last().size >= kMinTile;
  fill_map(op, plan.reduced, gone);
  plan.aligned = true;
  if (columns) {
    const Dim tile = kept.last();
    --kept.count;
    plan.columns = tile.size;
    plan.column_stride = tile.stride;
    plan.column_out = tile.out;
    plan.vector = tile.stride == 1;
    for (const Dim& d : gone) plan.aligned &= d.stride * bytes % 16 == 0;
    plan_columns(plan, kept.product(), width, gpu);
  } else {
    plan.vector = gone.count > 0 && gone.last().stride == 1 && (gone.count == 1 || gone.last().size % width == 0);
    for (int i = 0; i + 1 < gone.count; ++i) plan.aligned &= gone.dims[static_cast<std::size_t>(i)].stride * bytes % 16 == 0;
    plan_rows(plan, ceil_div(plan.length, width));
  }
  fill_map(op, plan.kept, kept);
  fill_padding(plan);

  if (plan.split > 1) {
    const std::int64_t groups = plan.blocks / plan.split;
    const std::int64_t states = columns ? plan.blocks * plan.lanes * width : plan.blocks;
    plan.counter_bytes = static_cast<std::size_t>(ceil_div(groups * 4, 256) * 256);
    plan.workspace_bytes = plan.counter_bytes + static_cast<std::size_t>(states) * state_bytes(state_of(kind), source.dtype);
  }
  return plan;
}

ContiguousMap contiguous_map(const char* op, const Source& source) {
  DimList list;
  std::int64_t count = 1;
  for (std::size_t d = 0; d < source.sizes.size(); ++d) {
    count *= source.sizes[d];
    if (source.sizes[d] > 1) list.push({source.sizes[d], source.strides[d], 0});
  }
  merge(list);
  ContiguousMap out{.map = {}, .count = count};
  fill_map(op, out.map, list);
  return out;
}

}  // namespace xgemm::reduce
