// A reduction's dims as the planners see them. Host code.
#pragma once
#include <array>
#include <utility>

#include "device/index_map.h"
#include "reduce/plan.h"
#include "torch/error.h"

namespace xgemm::reduce {

using Dim = StridedDim<2>;  ///< strides[kIn] in the input, strides[kOut] in the output
inline constexpr std::size_t kIn = 0, kOut = 1;

/// Outermost first. An array: a std::vector would allocate memory in every call.
struct DimList {
  std::array<Dim, kMaxRank> dims;
  std::size_t count = 0;

  DimList() {}  // `= default` would let {} clear all dims
  bool empty() const { return count == 0; }
  Dim* begin() { return dims.data(); }
  Dim* end() { return dims.data() + count; }
  const Dim* begin() const { return dims.data(); }
  const Dim* end() const { return dims.data() + count; }
  Dim& back() { return dims[count - 1]; }
  const Dim& back() const { return dims[count - 1]; }
  void push_back(const Dim& d) { dims[count++] = d; }
  void pop_back() { --count; }
  void clear() { count = 0; }
  std::int64_t product() const {
    std::int64_t n = 1;
    for (const Dim& d : *this) n *= d.size;
    return n;
  }
};

/// Sorts outermost first, expanded dims (stride 0) before all others, so that neighbours in memory are neighbours in the list.
inline void sort_by_stride(DimList& list) {
  const auto rank = [](const Dim& d) { return d.strides[kIn] == 0 ? INT64_MAX : d.strides[kIn]; };
  for (Dim* d = list.begin(); d != list.end(); ++d)  // a few dims: std::stable_sort would allocate memory
    for (Dim* e = d; e != list.begin() && rank(e[-1]) < rank(*e); --e) std::swap(e[-1], *e);
}

/// Joins neighbours that are steps of one run, in input and output.
inline void merge(DimList& list) {
  const std::size_t count = std::exchange(list.count, 0);
  for (std::size_t i = 0; i < count; ++i) append_merged(list, Dim(list.dims[i]));
}

inline void fill_map(const char* op, IndexMap& map, const DimList& list) {
  check(list.count <= IndexMap::kMaxDims, op, "expected at most ", IndexMap::kMaxDims, " dims that cannot be merged, got ",
        list.count);
  map.dims = static_cast<int>(list.count);
  for (std::size_t i = 0; i < list.count; ++i) {
    const Dim& d = list.dims[i];
    if (i > 0) map.size[i] = Divider::of(d.size);
    map.stride[i] = d.strides[kIn];
    map.out[i] = d.strides[kOut];
  }
}

struct Layout {
  DimList kept, gone;   ///< kept and reduced dims, merged, outermost first in memory (argmax: reduced dims in logical order)
  Arguments arguments;  ///< all but threads and CTAs
  State state;
  std::size_t state_bytes;
  std::int64_t width;      ///< elements of a 16-byte vector
  std::uintptr_t address;  ///< of the first element
  bool batch_invariant;

  /// Can the states of neighbouring columns be joined, and short columns be reduced by single elements?
  bool folds() const { return state != State::cross_entropy && state != State::mean_loss; }
  /// The innermost reduced dim is a run of stride 1 inside other reduced dims.
  bool has_runs() const { return gone.count > 1 && gone.back().strides[kIn] == 1; }
};

// A planner each (row_plan.cpp, column_plan.cpp). They take dims that the kernel does not map out of the layout.
RowPlan plan_rows(const Layout& layout, const DeviceProperties& gpu);
/// Up to `most` lanes a row.
ElementPlan plan_elements(const Layout& layout, std::int64_t most, int sm_count);
ShortColumnPlan plan_short_columns(Layout& layout, int sm_count);
PackedPlan plan_packed(const Layout& layout, int sm_count);
ColumnPlan plan_columns(Layout& layout, bool folded, const DeviceProperties& gpu);

/// The longest run whose columns a folded tile joins: for any stride its positions are then misaligned alike.
std::int64_t longest_folded_run(const Layout& layout);
/// Are a row's elements read 16 bytes at a time?
bool has_vector_rows(const Layout& layout);

}  // namespace xgemm::reduce
