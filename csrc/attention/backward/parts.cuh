// Operands of attention's gradients as fp16 parts: x s = high + low, high = fp16(x s), low = fp16(x s - high), s a power of two
// that brings a row's largest magnitude to [2^14, 2^15). That is 22 bits of what is within 2^17 of that magnitude.
//
//   Results   blocks of rows as the gradients' kernel has them in shared memory; rows after the last are 0.
//   Floor     reads 5 elements of fp32 (Q, dO, O, K, V) and writes 4 for each row and column.
#pragma once
#include "attention/backward/arguments.h"
#include "attention/fp16_split/softmax.cuh"
#include "attention/mma/copies.cuh"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"

namespace xgemm::attention {

/// kColumns: D at most. A CTA has kOwn rows of its own, and takes others in blocks of kRows.
template <int kHeadSize>
struct GradientTile {
  static constexpr int kColumns = kHeadSize, kRows = 2048 / kColumns, kOwn = 64, kThreads = 128;
  static constexpr bool kTogether = kColumns <= 64;  ///< registers hold the gradients of keys and of values
};

/// Rows of two operands, Q and dO or K and V, in parts.
template <class T>
struct alignas(128) GradientRows {
  unsigned char part[2][2][2 * T::kRows * T::kColumns];  ///< [operand][high, low], swizzled
  float inverse[2][T::kRows];                            ///< of the scales
  float lse[T::kRows], delta[T::kRows];                  ///< of queries; delta: the sum of O times dO
};

/// The power of two that scales a row with this largest magnitude, and its inverse; between 2^-86 and 2^114. NaN and infinity,
/// times either, stay.
struct RowScale {
  float scale, inverse;
  __device__ __forceinline__ explicit RowScale(float largest) {
    const unsigned exponent = min(max(__float_as_uint(largest) >> 23, 27u), 227u);
    scale = __uint_as_float((127 + 127 + 14 - exponent) << 23), inverse = __uint_as_float((exponent - 14) << 23);
  }
};
__device__ __forceinline__ float larger_magnitude(float a, float b) { return fmaxf(fabsf(a), fabsf(b)); }

/// In 32 bits, for kernels too: so many rows in blocks or tiles of `size`.
__host__ __device__ constexpr int blocks_of_rows(int rows, int size) { return (rows + size - 1) / size; }
/// Blocks of a head's queries, then of its keys, begin here.
template <class T>
__device__ __forceinline__ GradientRows<T>* blocks_of(const GradientArguments& g, std::int64_t batch, std::int64_t head,
                                                      bool keys) {
  const int queries = blocks_of_rows(g.sq, T::kRows);
  return static_cast<GradientRows<T>*>(g.parts) + (batch * g.heads + head) * (queries + blocks_of_rows(g.sk, T::kRows)) +
         (keys ? queries : 0);
}

/// A CTA splits a block.
template <class T>
__global__ void __launch_bounds__(T::kThreads) split_for_gradients(const __grid_constant__ GradientArguments g) {
  constexpr int kLanes = T::kColumns / 4;  // threads of a row
  using Words = Vector<std::uint32_t, 2>;
  const int queries = blocks_of_rows(g.sq, T::kRows), index = static_cast<int>(blockIdx.x);
  const bool keys = index >= queries;
  const int block = keys ? index - queries : index, rows = keys ? g.sk : g.sq;
  const std::int64_t batch = blockIdx.z, head = blockIdx.y;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, column = 4 * lane;
  GradientRows<T>& to = blocks_of<T>(g, batch, head, keys)[block];
  ptx::grid_wait();
#pragma unroll
  for (int of_block = static_cast<int>(threadIdx.x) / kLanes; of_block < T::kRows; of_block += T::kThreads / kLanes) {
    const int row = block * T::kRows + of_block;
    const auto load = [&](const GradientArguments::Operand& x) {
      Vector<float, 4> v{};
      if (row < rows && column < g.d) v = load_vector<4>(x.data + batch * x.batch + head * x.head + row * x.row + column);
      return v;
    };
    const Vector<float, 4> x[2] = {load(keys ? g.key : g.query), load(keys ? g.value : g.grad_output)};
    const int place = Swizzle<T::kColumns>::at(of_block, lane / 2) + lane % 2 * 8;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float largest = larger_magnitude(larger_magnitude(x[i][0], x[i][1]), larger_magnitude(x[i][2], x[i][3]));
      const RowScale by(warp_reduce<kLanes>(largest, larger_magnitude));
      Words high, low;
      split_pair(x[i][0] * by.scale, x[i][1] * by.scale, high[0], low[0]);
      split_pair(x[i][2] * by.scale, x[i][3] * by.scale, high[1], low[1]);
      store_vector(reinterpret_cast<std::uint32_t*>(to.part[i][0] + place), high);
      store_vector(reinterpret_cast<std::uint32_t*>(to.part[i][1] + place), low);
      if (lane == 0) to.inverse[i][of_block] = by.inverse;
    }
    if (keys) continue;
    const Vector<float, 4> out = load(g.output);
    const float products = fmaf(out[0], x[1][0], out[1] * x[1][1]) + fmaf(out[2], x[1][2], out[3] * x[1][3]);
    const float delta = warp_reduce<kLanes>(products, [](float a, float b) { return a + b; });
    if (lane == 0) {
      to.delta[of_block] = delta;
      to.lse[of_block] = row < rows ? g.lse[(batch * g.heads + head) * g.lse_row + row] : 0.f;
    }
  }
}

}  // namespace xgemm::attention
