// A reduction's dims as the planners see them. Host code.
#pragma once
#include "reduce/dims.h"

namespace xgemm::reduce {

struct Layout {
  DimList kept, gone;   ///< kept and reduced dims, merged, outermost first in memory (argmax: reduced dims in logical order)
  Arguments arguments;  ///< all but threads and CTAs
  State state;
  std::size_t state_bytes;
  std::int64_t width;      ///< elements of a 16-byte vector
  std::uintptr_t address;  ///< of the first element
  bool batch_invariant;

  /// Can the states of neighbouring columns be joined, and short columns be reduced by single elements?
  bool folds() const {
    return state == State::sum || state == State::maximum || state == State::index || state == State::logsumexp;
  }
  /// The innermost reduced dim is a run of stride 1 inside other reduced dims.
  bool has_runs() const { return gone.count > 1 && gone.back().strides[kIn] == 1; }
};

/// What decides the kernel. folded: short runs that are adjacent in memory. small_tile: few elements side by side.
enum class LayoutClass : std::uint8_t { one_element, rows, elements, small_tile, short_columns, columns, folded };
LayoutClass class_of(const Layout& layout);

// A planner each (row_plan.cpp, column_plan.cpp). They take dims that the kernel does not map out of the layout.
RowPlan plan_rows(const Layout& layout, const DeviceProperties& gpu);
/// Up to `most` lanes a row.
ElementPlan plan_elements(const Layout& layout, std::int64_t most, int sm_count);
ShortColumnPlan plan_short_columns(Layout& layout, int sm_count);
ColumnPlan plan_columns(Layout& layout, bool folded, const DeviceProperties& gpu);

/// The longest run whose columns a folded tile joins: for any stride its positions are then misaligned alike.
std::int64_t longest_folded_run(const Layout& layout);
/// Are a row's elements read 16 bytes at a time?
bool has_vector_rows(const Layout& layout);

}  // namespace xgemm::reduce
