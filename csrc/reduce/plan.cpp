#include "reduce/plan.h"

#include <algorithm>

#include "device/integer.h"
#include "reduce/layout.h"

namespace xgemm::reduce {
namespace {

/// The element that does not change an operator's result, repeated over 16 bytes.
void fill_padding(Arguments& plan) {
  if (state_of(plan.kind) == State::sum) return;
  std::size_t width = size_of(plan.in) * 8;
  std::uint64_t bits = 0;  // infinity
  switch (plan.in) {
    case DType::f32: bits = 0x7f800000; break;
    case DType::f16: bits = 0x7c00; break;
    case DType::bf16: bits = 0x7f80; break;
    case DType::f64: bits = 0x7ff0000000000000; break;
    default: throw UnplannedDType();
  }
  if (plan.kind == Kind::mean_loss) bits = 0;
  if (plan.kind != Kind::amin && plan.kind != Kind::argmin) bits |= std::uint64_t{1} << (width - 1);  // its negative
  for (; width < 64; width *= 2) bits |= bits << width;
  for (int i = 0; i < 4; ++i) plan.fill[i] = static_cast<std::uint32_t>(bits >> (i % 2 * 32));
}

/// Kept and reduced dims, and the arguments that they decide.
Layout layout_of(const char* op, const Problem& problem) {
  const Source& source = problem.source;
  Layout layout;  // braces would clear all dims
  layout.arguments = {.kind = problem.kind, .in = source.dtype, .out = problem.out, .pairs = problem.pairs, .loss = problem.loss};
  layout.state = state_of(problem.kind);
  layout.state_bytes = state_bytes(layout.state, source.dtype);
  layout.width = static_cast<std::int64_t>(16 / size_of(source.dtype));
  layout.address = reinterpret_cast<std::uintptr_t>(source.data);
  layout.batch_invariant = problem.batch_invariant;
  const std::size_t rank = source.sizes.size();
  check(rank <= kMaxRank, op, "expected input of at most ", kMaxRank, " dims, got ", rank);
  DimList &kept = layout.kept, &gone = layout.gone;
  const auto is_reduced = [&](std::size_t d) { return (problem.reduced >> d & 1) != 0; };
  std::int64_t out_step = 1;
  std::array<std::int64_t, kMaxRank> out_strides;
  for (std::size_t d = rank; d-- > 0;) {
    out_strides[d] = is_reduced(d) ? 0 : out_step;
    if (!is_reduced(d)) out_step *= source.sizes[d];
  }
  bool empty = false;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = source.sizes[d];
    empty |= size == 0 && is_reduced(d);
    if (size > 1) (is_reduced(d) ? gone : kept).push_back({size, {source.strides[d], out_strides[d]}});
  }
  sort_by_stride(kept);
  merge(kept);
  // argmax returns an index in logical order, so its dims keep that order.
  if (layout.state != State::index) sort_by_stride(gone);
  merge(gone);
  if (empty) gone.clear();  // no run of the other reduced dims may be read
  Arguments& arguments = layout.arguments;
  arguments.outputs = kept.product();
  arguments.length = empty ? 0 : gone.product();
  for (const DimList* list : {&kept, &gone})
    for (const Dim& d : *list) arguments.last += (d.size - 1) * d.strides[kIn];
  fill_padding(arguments);
  return layout;
}

/// The most positions that the kernel for short columns takes of `columns` side by side (docs/log/reduce.md).
std::int64_t most_short_positions(const Layout& layout, std::int64_t columns, bool fills_tile) {
  constexpr std::int64_t kManyColumns = 512, kOfIndices = 1024, kOfNumbers = 768, kOfPairs = 512, kOfFewColumns = 32;
  if (columns < kManyColumns) return fills_tile ? kOfFewColumns : kTree;
  if (layout.state == State::index) return kOfIndices;
  return layout.state == State::logsumexp ? kOfPairs : kOfNumbers;
}

/// Elements side by side of which the column kernel would give most of its threads one vector or none, and all of them wait at
/// its joins. `group`: elements of neighbouring columns.
bool is_small_tile(const Layout& layout, std::int64_t group) {
  // Measured on an H200: elements of a tile, of one of up to eight columns, and of all tiles together where these are few.
  constexpr std::int64_t kSmall = 3584, kNarrow = 8, kSmallNarrow = 6144, kFew = 1 << 17, kLongestOfFew = 4096;
  if (layout.arguments.in == DType::f64) return false;
  const Arguments& all = layout.arguments;
  return group <= (layout.kept.back().size <= kNarrow ? kSmallNarrow : kSmall) ||
         (all.length <= kLongestOfFew && all.outputs * all.length <= kFew);
}

/// Is the array dense, with one reduced dim, in many groups, and results in their order? Up to kTree positions the kernel for
/// short columns is faster, unless single elements of its warps are far apart.
bool is_packed(const Layout& layout) {
  constexpr std::int64_t kMany = 1 << 17, kFewPositions = 4, kFewBytes = 16;  // elements of all groups; of a position
  const DimList &kept = layout.kept, &gone = layout.gone;
  const Arguments& all = layout.arguments;
  if (!layout.folds() || all.in == DType::f64 || kept.count != 2 || gone.count != 1) return false;
  const std::int64_t columns = kept.back().size, group = all.length * columns;
  const bool short_ones = all.length <= kTree, apart = columns * static_cast<std::int64_t>(size_of(all.in)) < kFewBytes;
  return (!short_ones || (all.length <= kFewPositions && apart)) && all.outputs * all.length >= kMany &&
         kept.back().strides == std::array{std::int64_t{1}, std::int64_t{1}} &&
         kept.dims[0].strides == std::array{group, columns} && gone.back().strides[kIn] == columns;
}

/// folded: short runs, adjacent in memory. small_tile: few elements side by side. packed: enough dense groups of a few elements.
enum class LayoutClass : std::uint8_t { rows, elements, small_tile, packed, short_columns, columns, folded };

/// The fastest dim is kept, or short runs lie side by side; rows otherwise.
LayoutClass class_of(const Layout& layout) {
  // A tile of fewer elements would leave most of a CTA idle; then one thread or a few compute an output, as for rows.
  constexpr std::int64_t kMinTile = 2048;
  if (layout.kept.count == 0 || layout.arguments.length <= 1) return LayoutClass::rows;
  const Dim& columns = layout.kept.back();
  const Dim& run = layout.gone.back();
  std::int64_t inner = INT64_MAX;  // the least distance of reduced elements
  for (const Dim& d : layout.gone)
    if (d.strides[kIn] != 0) inner = std::min(inner, d.strides[kIn]);
  const std::int64_t length = layout.arguments.length, group = length * columns.size;
  const bool fills_tile = group >= kMinTile;
  // Each element of a run is a column, and the columns of a run are joined at the end.
  const bool folded = layout.folds() && layout.state != State::index && layout.has_runs() && columns.strides[kIn] == run.size &&
                      run.size <= longest_folded_run(layout) && fills_tile;
  const bool side_by_side = columns.strides[kIn] != 0 && columns.strides[kIn] < inner;
  if (!folded && !side_by_side) return LayoutClass::rows;
  static_assert(kMinTile <= kPackedElements);  // a CTA keeps a group
  if (!fills_tile && is_packed(layout)) return LayoutClass::packed;
  if (!folded && layout.folds() && layout.gone.count == 1) {
    const bool wide = layout.arguments.in == DType::f64;  // which has no kernel for short columns
    if (length <= most_short_positions(layout, wide ? 1 : columns.size, fills_tile))
      return wide ? LayoutClass::elements : LayoutClass::short_columns;
  }
  if (!fills_tile) return LayoutClass::rows;
  if (layout.folds() && is_small_tile(layout, group)) return LayoutClass::small_tile;
  return folded ? LayoutClass::folded : LayoutClass::columns;
}

/// Adds the workspace and the maps of the dims that the planner has left. By reference, after the planner: it changes dims.
template <class Kernel>
Plan finished(const char* op, Kernel&& kernel, const Layout& layout) {
  check(kernel.ctas <= INT32_MAX, op, "expected a problem of fewer than 2^31 CTAs, got ", kernel.ctas);
  fill_map(op, kernel.reduced, layout.gone);
  fill_map(op, kernel.kept, layout.kept);
  std::int64_t groups = 0, states = 0;  // groups of CTAs that share an output through global memory, their states there
  if constexpr (std::is_same_v<Kernel, RowPlan>) {
    if (kernel.ctas_per_row > 1 && kernel.cluster == 1)
      groups = kernel.outputs, states = kernel.grouped ? kernel.ctas : kernel.outputs * kernel.splits;
  } else if constexpr (std::is_same_v<Kernel, ColumnPlan>) {
    if (kernel.splits > 1) groups = kernel.ctas / kernel.splits, states = kernel.ctas * kernel.results;
  }
  const auto counters = states == 0 ? 0 : static_cast<std::size_t>(round_up(groups * 4, 256));
  return {std::move(kernel), counters, counters + static_cast<std::size_t>(states) * layout.state_bytes};
}

}  // namespace

State state_of(Kind kind) {
  constexpr State kStates[] = {State::sum,   State::sum,       State::maximum,       State::maximum,  State::index,
                               State::index, State::logsumexp, State::cross_entropy, State::mean_loss};  // by Kind
  return kStates[static_cast<int>(kind)];
}

std::size_t state_bytes(State state, DType dtype) {
  const std::size_t value = dtype == DType::f64 ? 8 : 4;
  if (state == State::index) return 16;
  return state == State::sum || state == State::maximum ? value : 2 * value;
}

bool converts_on_load(DType from, DType to) { return from == to || (is_half(from) && to == DType::f32); }

bool has_dense_rows(const Source& source, std::uint64_t reduced) {
  std::int64_t step = 1;
  for (std::size_t d = source.sizes.size(); d-- > 0;) {
    if (!(reduced >> d & 1) || source.sizes[d] == 1) continue;
    if (source.strides[d] != step) return false;
    step *= source.sizes[d];
  }
  return true;
}

Plan make_plan(const char* op, const Problem& problem, const DeviceProperties& gpu) {
  constexpr std::int64_t kWarp = 32, kLongestElements = 2048;  // of a row that one warp reads one at a time
  Layout layout = layout_of(op, problem);
  const std::int64_t length = layout.arguments.length;
  if (length == 1 && layout.folds()) return finished(op, CopyPlan{layout.arguments}, layout);
  const LayoutClass kind = class_of(layout);
  switch (kind) {
    case LayoutClass::elements: return finished(op, plan_elements(layout, kWarp, gpu.sm_count), layout);
    case LayoutClass::packed: return finished(op, plan_packed(layout, gpu.sm_count), layout);
    case LayoutClass::small_tile: return finished(op, plan_elements(layout, kElementThreads, gpu.sm_count), layout);
    case LayoutClass::short_columns: return finished(op, plan_short_columns(layout, gpu.sm_count), layout);
    case LayoutClass::columns:
    case LayoutClass::folded: return finished(op, plan_columns(layout, kind == LayoutClass::folded, gpu), layout);
    case LayoutClass::rows: break;
  }
  if (layout.folds() && !has_vector_rows(layout) && length > 1 && length <= kLongestElements)
    return finished(op, plan_elements(layout, kWarp, gpu.sm_count), layout);
  return finished(op, plan_rows(layout, gpu), layout);
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
