// cuTensorMapEncodeTiled, which csrc/device/tensor_map.cpp finds through the runtime, and the other runtime functions that
// csrc's host code calls.
#include "tensor_map.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstring>

#include "emulation.h"

namespace emulation {
namespace {

constexpr std::uint64_t kMagic = 0x7465736e6f724d61;

CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides,
                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                CUtensorMapFloatOOBfill fill) {
  TensorMap out{};
  out.magic = kMagic;
  out.data = static_cast<unsigned char*>(data);
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16: out.element_bytes = 2; break;
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: out.tf32 = true; [[fallthrough]];
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: out.element_bytes = 4; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: out.swizzle = 0; break;
    case CU_TENSOR_MAP_SWIZZLE_32B: out.swizzle = 32; break;
    case CU_TENSOR_MAP_SWIZZLE_64B: out.swizzle = 64; break;
    case CU_TENSOR_MAP_SWIZZLE_128B: out.swizzle = 128; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (rank < 1 || rank > 5 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE ||
      reinterpret_cast<std::uintptr_t>(data) % 16 || reinterpret_cast<std::uintptr_t>(map) % 64)
    return CUDA_ERROR_INVALID_VALUE;
  out.rank = static_cast<std::int8_t>(rank);
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (sizes[i] < 1 || sizes[i] > 1ull << 32 || box[i] < 1 || box[i] > 256 || element_strides[i] != 1)
      return CUDA_ERROR_INVALID_VALUE;
    if (i > 0 && (strides[i - 1] == 0 || strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40)) return CUDA_ERROR_INVALID_VALUE;
    out.sizes[i] = static_cast<std::int64_t>(sizes[i]);
    out.box[i] = static_cast<std::int16_t>(box[i]);
    out.strides[i] = i > 0 ? static_cast<std::int64_t>(strides[i - 1]) : 0;
  }
  const int row = out.box[0] * out.element_bytes;
  if (row % 16 || (out.swizzle != 0 && row > out.swizzle)) return CUDA_ERROR_INVALID_VALUE;
  std::memset(map, 0, sizeof(*map));
  std::memcpy(map, &out, sizeof(out));
  return CUDA_SUCCESS;
}

}  // namespace

TensorMap tensor_map_from(const void* bytes) {
  TensorMap map;
  std::memcpy(&map, bytes, sizeof(map));
  if (map.magic != kMagic) fail("a tensor map that was never encoded");
  if (reinterpret_cast<std::uintptr_t>(bytes) % 64) fail("a tensor map that is not aligned to 64 bytes");
  return map;
}

}  // namespace emulation

extern "C" {
cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int, unsigned long long,
                                                       cudaDriverEntryPointQueryResult* result) {
  const bool known = std::strcmp(symbol, "cuTensorMapEncodeTiled") == 0;
  *function = known ? reinterpret_cast<void*>(&emulation::encode) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t CUDARTAPI cudaMemsetAsync(void* data, int value, std::size_t count, cudaStream_t) {
  std::memset(data, value, count);
  return cudaSuccess;
}
cudaError_t CUDARTAPI cudaGetLastError() { return cudaSuccess; }
}
