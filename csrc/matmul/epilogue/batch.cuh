// The place of a batch in each of its dims.
#pragma once
#include "matmul/problem.h"

namespace xgemm::matmul {

/// Calls f(d, index in dim d) for batch `index` of `p`, a Problem or what has its batch_dims and batch[]. Short code, because it
/// runs before the first load.
template <class Index, class F>
__device__ __forceinline__ void each_batch_dim(const auto& p, Index index, const F& f) {
#pragma unroll 1
  for (int d = p.batch_dims - 1; d >= 0; --d) {
    const auto size = static_cast<Index>(p.batch[d]);
    f(d, static_cast<std::int64_t>(index % size));
    index /= size;
  }
}

}  // namespace xgemm::matmul
