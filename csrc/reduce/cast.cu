// Copies. launch_copy: the result of a reduction over one element. launch_cast: a pass that converts the input, before a
// reduction or softmax whose dtype= changes values before they are added, and before a softmax of a layout that its kernels
// cannot read. Any strides, any of the ten dtypes to a floating one or int64. Floor: one read and one write.
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "device/numeric.cuh"
#include "device/ptx/grid.cuh"
#include "reduce/launch.h"

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
    default: break;  // no caller asks for it
  }
}

__device__ __forceinline__ void cast_element(const void* __restrict__ in, std::int64_t at, DType from, void* __restrict__ out,
                                             std::int64_t i, DType to) {
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

/// kMapped: offsets in `out` from the map too, else `out` is contiguous.
template <bool kMapped>
__global__ void __launch_bounds__(256) cast_strided(const __grid_constant__ IndexMap map, std::int64_t count,
                                                    const void* __restrict__ in, DType from, void* __restrict__ out, DType to) {
  if constexpr (kMapped) {  // launched early
    ptx::grid_release();
    in = ptx::grid_wait(in);
  }
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    const IndexMap::Pair at = kMapped ? map.offsets(i) : IndexMap::Pair{map.offset(i), i};
    cast_element(in, at.in, from, out, at.out, to);
  }
}

constexpr int kCopySteps = 4;  // 16-byte vectors of a thread

/// out[0..bytes - 1] = in, or zeros where `in` is null. Both are aligned to 16 bytes; the last bytes are stored one by one.
__global__ void __launch_bounds__(256) copy_bytes(const char* __restrict__ in, char* __restrict__ out, std::int64_t bytes) {
  ptx::grid_release();
  in = ptx::grid_wait(in);
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * (256 * kCopySteps) + threadIdx.x) * 16;
  uint4 raw[kCopySteps] = {};
#pragma unroll
  for (int j = 0; j < kCopySteps; ++j)
    if (in != nullptr && first + j * 4096 + 16 <= bytes) raw[j] = *reinterpret_cast<const uint4*>(in + first + j * 4096);
#pragma unroll
  for (int j = 0; j < kCopySteps; ++j) {
    const std::int64_t at = first + j * 4096;
    if (at + 16 <= bytes)
      *reinterpret_cast<uint4*>(out + at) = raw[j];
    else
      for (std::int64_t i = at; i < bytes; ++i) out[i] = in != nullptr ? in[i] : 0;
  }
}

}  // namespace

void launch_cast(const char* op, const Source& source, void* out, DType dtype, cudaStream_t stream) {
  const auto [map, count] = contiguous_map(op, source.sizes, source.strides);
  if (count == 0) return;
  const std::int64_t blocks = std::min<std::int64_t>(ceil_div(count, 256), 1 << 16);
  cast_strided<false><<<static_cast<unsigned>(blocks), 256, 0, stream>>>(map, count, source.data, source.dtype, out, dtype);
}

void launch_copy(const CopyPlan& plan, const void* in, void* out, cudaStream_t stream) {
  if (plan.outputs == 0) return;
  const bool zeros = state_of(plan.kind) == State::index;  // the only position; the result is contiguous
  const bool one = plan.kept.dims == 0 || (plan.kept.dims == 1 && plan.kept.stride[0] == 1 && plan.kept.out[0] == 1);
  const auto address = reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out);
  if (zeros || (one && plan.in == plan.out && address % 16 == 0)) {
    const std::int64_t bytes = plan.outputs * static_cast<std::int64_t>(zeros ? sizeof(std::int64_t) : size_of(plan.in));
    const Grid grid = early_grid(ceil_div(bytes, 4096 * kCopySteps), 256);
    return enqueue(copy_bytes, grid, stream, static_cast<const char*>(zeros ? nullptr : in), static_cast<char*>(out), bytes);
  }
  const Grid grid = early_grid(std::min<std::int64_t>(ceil_div(plan.outputs, 256), 1 << 16), 256);
  enqueue(cast_strided<true>, grid, stream, plan.kept, plan.outputs, in, plan.in, out, plan.out);
}

}  // namespace xgemm::reduce
