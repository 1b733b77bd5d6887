// A pass that converts the input: before a reduction or softmax whose dtype= changes values before they are added, and before a
// softmax of a layout that its kernels cannot read. Any strides, any of the ten dtypes to any other. Floor: one read and one
// write.
#include <algorithm>

#include "device/numeric.cuh"
#include "reduce/cast.h"

namespace xgemm::reduce {

namespace {

template <class From>
__device__ __forceinline__ void cast_store(From x, void* out, std::int64_t i, DType dtype) {
  switch (dtype) {
    case DType::f32: static_cast<float*>(out)[i] = convert<float>(x); break;
    case DType::f16: static_cast<half*>(out)[i] = convert<half>(convert<float>(x)); break;
    case DType::bf16: static_cast<bf16*>(out)[i] = convert<bf16>(convert<float>(x)); break;
    case DType::f64: static_cast<double*>(out)[i] = convert<double>(x); break;
    case DType::i64: static_cast<std::int64_t*>(out)[i] = convert<std::int64_t>(x); break;
    case DType::i32: static_cast<std::int32_t*>(out)[i] = convert<std::int32_t>(x); break;
    case DType::i16: static_cast<std::int16_t*>(out)[i] = convert<std::int16_t>(x); break;
    case DType::i8: static_cast<std::int8_t*>(out)[i] = convert<std::int8_t>(x); break;
    case DType::u8:  // through int64, so that negative values wrap instead of saturating
      static_cast<std::uint8_t*>(out)[i] = static_cast<std::uint8_t>(convert<std::int64_t>(x));
      break;
    case DType::boolean: static_cast<bool*>(out)[i] = convert<float>(x) != 0.0f || convert<double>(x) != 0.0; break;
  }
}

__global__ void __launch_bounds__(256) cast_strided(const __grid_constant__ IndexMap map, std::int64_t count,
                                                    const void* __restrict__ in, DType from, void* __restrict__ out, DType to) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const std::int64_t at = map.offset(i);
    switch (from) {
      case DType::f32: cast_store(static_cast<const float*>(in)[at], out, i, to); break;
      case DType::f16: cast_store(convert<float>(static_cast<const half*>(in)[at]), out, i, to); break;
      case DType::bf16: cast_store(convert<float>(static_cast<const bf16*>(in)[at]), out, i, to); break;
      case DType::f64: cast_store(static_cast<const double*>(in)[at], out, i, to); break;
      case DType::i64: cast_store(static_cast<const std::int64_t*>(in)[at], out, i, to); break;
      case DType::i32: cast_store(static_cast<std::int64_t>(static_cast<const std::int32_t*>(in)[at]), out, i, to); break;
      case DType::i16: cast_store(static_cast<std::int64_t>(static_cast<const std::int16_t*>(in)[at]), out, i, to); break;
      case DType::i8: cast_store(static_cast<std::int64_t>(static_cast<const std::int8_t*>(in)[at]), out, i, to); break;
      case DType::u8:
      case DType::boolean: cast_store(static_cast<std::int64_t>(static_cast<const std::uint8_t*>(in)[at]), out, i, to); break;
    }
  }
}

}  // namespace

void launch_cast(const char* op, const Source& source, void* out, DType dtype, cudaStream_t stream) {
  const auto [map, count] = contiguous_map(op, source.sizes, source.strides);
  if (count == 0) return;
  const std::int64_t blocks = std::min<std::int64_t>((count + 255) / 256, 1 << 16);
  cast_strided<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(map, count, source.data, source.dtype, out, dtype);
}

}  // namespace xgemm::reduce
