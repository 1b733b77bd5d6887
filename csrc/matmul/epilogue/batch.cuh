// The place of a batch in each of its dims, in 32 bits.
#pragma once
#include "matmul/problem.h"

namespace xgemm::matmul {

/// Calls f(d, index in dim d) for batch `index`. Short code, because it runs before the first load.
template <class F>
__device__ __forceinline__ void each_batch_dim(const Problem& p, unsigned index, const F& f) {
#pragma unroll 1
  for (int d = p.batch_dims - 1; d >= 0; --d) {
    const auto size = static_cast<unsigned>(p.batch[d]);
    f(d, static_cast<std::int64_t>(index % size));
    index /= size;
  }
}

}  // namespace xgemm::matmul
