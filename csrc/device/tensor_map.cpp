#include "device/tensor_map.h"

#include <cudaTypedefs.h>

#include <algorithm>

#include "device/driver.h"

namespace xgemm {

bool tensor_map_possible(const void* data, DType dtype, std::int64_t stride1, std::int64_t stride2) {
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride1 * bytes % 16 == 0 && stride2 * bytes % 16 == 0;
}

bool make_tensor_map(CUtensorMap& map, const TensorMapSpec& spec) {
  static const auto encode = driver_function<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled", 12000);
  if (!encode) return false;
  const auto bytes = static_cast<cuuint64_t>(size_of(spec.dtype));
  cuuint64_t sizes[5], strides[4];
  cuuint32_t box[5], element_strides[5];
  for (int i = 0; i < spec.rank; ++i) {
    sizes[i] = static_cast<cuuint64_t>(spec.sizes[i]);
    box[i] = static_cast<cuuint32_t>(std::max(spec.box[i], 1));
    element_strides[i] = 1;
    // The stride of a dim of size 1 is never used and may be 0, which the encoder rejects.
    if (i > 0) strides[i - 1] = std::max<cuuint64_t>(static_cast<cuuint64_t>(spec.strides[i - 1]) * bytes, 16);
  }
  const auto type = spec.dtype == DType::bf16  ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                    : spec.dtype == DType::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                    : spec.tf32                ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                               : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const auto swizzle = spec.swizzle_bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
                       : spec.swizzle_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                  : CU_TENSOR_MAP_SWIZZLE_NONE;
  // Not 256: for rows that straddle cache lines L2 would fetch both lines and the next two.
  return encode(&map, type, static_cast<cuuint32_t>(spec.rank), const_cast<void*>(spec.data), sizes, strides, box,
                element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace xgemm
