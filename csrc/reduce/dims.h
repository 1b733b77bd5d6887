// Dims of an input with their strides in the input and in the output, and index maps over them. Host code.
#pragma once
#include <array>
#include <utility>

#include "device/index_map.h"
#include "device/strided_dim.h"
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

}  // namespace xgemm::reduce
