// Tensor maps for TMA, made on the host: no device work, no allocation, safe during graph capture.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "device/dtype.h"

namespace xgemm {

/// A tensor of three to five dims, innermost contiguous, and the box that one TMA instruction moves.
struct TensorMapSpec {
  const void* data;         ///< 16-byte aligned
  DType dtype;              ///< f16, bf16 or f32
  std::int64_t sizes[5];    ///< innermost first, at least 1 each
  std::int64_t strides[4];  ///< of dims 1 and up, in elements; multiples of 16 bytes (0: the dim's size is 1)
  int box[5];               ///< at most 256 each; 0 stands for 1; box[0] spans the swizzle width
  int swizzle_bytes;        ///< 128, 64 or 0
  bool tf32 = false;        ///< f32: rounded to tf32's 10 bits on the way, to nearest even; Inf and NaN stay Inf and NaN
  int rank = 3;
};

/// Can TMA load a tensor with this base and these strides (in elements)?
bool tensor_map_possible(const void* data, DType dtype, std::int64_t stride1, std::int64_t stride2);

/// Fills `map`; false if the driver lacks the entry point or rejects the spec.
bool make_tensor_map(CUtensorMap& map, const TensorMapSpec& spec);

}  // namespace xgemm
