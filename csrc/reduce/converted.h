// An op's input as its kernel reads it: the tensor itself, or a dense copy in another dtype or order of dims.
#pragma once
#include "reduce/launch.h"
#include "torch/aten.h"
#include "torch/cuda.h"

namespace xgemm::reduce {

/// Owns the copy, if there is one; the stream orders the reuse of its memory.
class Converted {
 public:
  /// `as_is`: the kernel converts on load, or nothing needs to be converted. `rows`: bits of the dims that a copy has last, as
  /// its rows; other dims stay in front of them, both in their order.
  Converted(const TensorView& v, bool as_is, ScalarType dtype, const CudaScope& scope, std::uint64_t rows = 0)
      : source_{v.data, to_dtype(v.dtype), v.sizes, v.strides}, rows_(rows) {
    if (as_is) return;
    std::vector<std::size_t> order;  // the dims of v in the copy's order
    for (const bool last : {false, true})
      for (std::size_t d = 0; d < v.sizes.size(); ++d)
        if ((rows >> d & 1) == last) order.push_back(d);
    Shape from;
    rows_ = 0;
    for (const std::size_t d : order) {
      rows_ |= (rows >> d & 1) << sizes_.size();
      sizes_.push_back(v.sizes[d]);
      from.push_back(v.strides[d]);
    }
    copy_ = empty(sizes_, dtype, v);
    strides_ = contiguous_strides(sizes_);
    source_ = {copy_->data_ptr(), to_dtype(dtype), sizes_, strides_};
    launch_cast(v.op, {v.data, to_dtype(v.dtype), sizes_, from}, copy_->data_ptr(), source_.dtype, scope.stream());
    scope.check_launch();
    strides_before_.resize(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) strides_before_[order[i]] = strides_[i];
  }
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;

  const Source& source() const { return source_; }
  std::uint64_t rows() const { return rows_; }
  /// A copy's strides in the order of the tensor's dims: of results that lie as its rows do.
  const Shape& strides_before() const { return strides_before_; }

 private:
  Source source_;
  std::uint64_t rows_;
  std::optional<Tensor> copy_;
  Shape sizes_, strides_, strides_before_;
};

/// Runs a planned reduction with the memory that it needs.
inline void run(const Plan& plan, const void* in, void* out, const CudaScope& scope) {
  const MeetingPlace place = scope.meeting_place(plan.counter_bytes, plan.workspace_bytes - plan.counter_bytes);
  launch(plan, in, out, Workspace{place.counters, place.partials}, scope.stream());
  scope.check_launch();
}
inline void run(const char* op, const Problem& problem, void* out, const CudaScope& scope) {
  run(make_plan(op, problem, scope.properties()), problem.source.data, out, scope);
}

}  // namespace xgemm::reduce
