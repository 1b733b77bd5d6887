// An op's input as its kernel reads it: the tensor itself, or a dense copy in another dtype.
#pragma once
#include "reduce/cast.h"
#include "torch/cuda.h"

namespace xgemm::reduce {

/// Owns the copy, if there is one; the stream orders the reuse of its memory.
class Converted {
 public:
  /// `as_is`: the kernel converts on load, or nothing needs to be converted.
  Converted(const TensorView& v, bool as_is, ScalarType dtype, const CudaScope& scope)
      : source_{v.data, to_dtype(v.dtype), v.sizes, v.strides} {
    if (as_is) return;
    copy_ = empty(v.sizes, dtype, v);
    const TensorView c = view(v.op, v.name, *copy_);
    strides_.assign(c.strides.begin(), c.strides.end());
    launch_cast(v.op, source_, c.data, to_dtype(dtype), scope.stream());
    scope.check_launch();
    source_ = {c.data, to_dtype(dtype), v.sizes, strides_};
  }
  Converted(const Converted&) = delete;
  Converted& operator=(const Converted&) = delete;

  const Source& source() const { return source_; }

 private:
  Source source_;
  std::optional<Tensor> copy_;
  Shape strides_;
};

}  // namespace xgemm::reduce
