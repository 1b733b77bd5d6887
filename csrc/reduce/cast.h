// Copies a strided array to a contiguous one of another dtype, rounding as torch's Tensor.to does.
#pragma once
#include <cuda_runtime.h>

#include "reduce/plan.h"

namespace xgemm::reduce {

/// out: contiguous, as many elements as `source`, in its logical order. `dtype`: floating or int64. A source of no elements
/// launches nothing.
void launch_cast(const char* op, const Source& source, void* out, DType dtype, cudaStream_t stream);

}  // namespace xgemm::reduce
