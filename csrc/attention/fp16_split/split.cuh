// fp32 operands of attention as fp16 parts: x s = high + low, high = fp16(x s), low = fp16(x s - high), s a power of two that
// brings the largest magnitude of its row (queries, keys), or of its column in a tile of keys (values), to [2^14, 2^15). That
// is 22 bits or more of every element within 2^17 of that magnitude and 2^-39 of it below (Ootomo & Yokota, arXiv 2203.03341).
// One part is high alone: 11 bits, as TF32 has, within 2^28 of that magnitude, and 2^-39 of it below.
//
//   Operands  any strides; at most kColumns columns. A CTA splits a tile's keys or values, or as many queries.
//   Results   the parts, row by row, columns padded with zeros; the scales' inverses; one SplitStatus per CTA.
//   Floor     reads 4 and writes 4 (one part: 2) bytes per element.
//
// What the parts cannot represent. "Lossy": smaller than 2^-17 (2^-28) of its scale's maximum and not exactly high + low;
// "dense": at least 2^-9 of it. A CTA fails if a magnitude is NaN, Inf or not 0 and outside [2^-60, 2^60], or if more than a
// sixteenth (and more than one) of a row or, of values, of a column in the block is lossy. Besides, scores need rows of queries
// and keys that are dense at the same columns: shares of 9/8 together, unless nothing is lossy at all (the bound:
// fp16_split/split.cuh of matmul).
#pragma once
#include "attention/fp16_split/softmax.cuh"
#include "attention/fp16_split/tile.h"
#include "device/numeric.cuh"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"

namespace xgemm::attention {

inline constexpr int kSplitThreads = 256;

/// 2^e, e in [-126, 127].
__device__ __forceinline__ float power_of_two(int e) { return __int_as_float((e + 127) << 23); }

/// The scale of numbers whose largest magnitude has these bits, and its inverse, for magnitudes that do not fail.
struct SplitScale {
  float scale, inverse;
  bool failed;
  SplitScale() = default;
  __device__ __forceinline__ explicit SplitScale(unsigned largest) {
    constexpr int kRange = 60;
    const int exponent = static_cast<int>(largest >> 23) - 127;
    failed = largest != 0 && (exponent < -kRange || exponent >= kRange);
    const int e = largest == 0 || failed ? 0 : 14 - exponent;
    scale = power_of_two(e), inverse = power_of_two(-e);
  }
};

/// Four scaled neighbours in two parts, two numbers per word.
struct SplitPieces {
  Vector<std::uint32_t, 2> high, low;
};
/// Magnitudes of scaled numbers below which a number may be lossy: 2^-17 and 2^-28 of the largest one.
constexpr float may_be_lossy(int parts) { return parts == 2 ? 0.125f : 0x1p-14f; }
/// Element i: 1 if it is dense, plus 2^16 if it is lossy.
template <int kParts>
__device__ __forceinline__ unsigned count_element(float x, float scaled, const SplitPieces& pieces, int i) {
  const auto part = [i](const Vector<std::uint32_t, 2>& v) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(v[i / 2] >> (i % 2 * 16))));
  };
  const float magnitude = fabsf(scaled);
  const float low = kParts == 2 ? part(pieces.low) : 0.f;
  const bool lossy = (magnitude < may_be_lossy(kParts)) & ((low != scaled - part(pieces.high)) | ((scaled == 0.f) & (x != 0.f)));
  return (magnitude >= 32.f ? 1u : 0u) + (lossy ? 1u << 16 : 0u);
}
__device__ __forceinline__ SplitPieces split_four(const float (&scaled)[4]) {
  SplitPieces pieces;
#pragma unroll
  for (int i = 0; i < 2; ++i) split_pair(scaled[2 * i], scaled[2 * i + 1], pieces.high[i], pieces.low[i]);
  return pieces;
}
__device__ __forceinline__ float smallest_of(const float (&scaled)[4]) {
  return fminf(fminf(fabsf(scaled[0]), fabsf(scaled[1])), fminf(fabsf(scaled[2]), fabsf(scaled[3])));
}
__device__ __forceinline__ bool too_lossy(unsigned lossy, int count) {
  return lossy > 1 && 16 * lossy > static_cast<unsigned>(count);
}

__device__ __forceinline__ unsigned merge_status(unsigned a, unsigned b) {
  return min(a & kSplitDensity, b & kSplitDensity) | ((a | b) & ~static_cast<unsigned>(kSplitDensity));
}
__device__ __forceinline__ unsigned magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }
/// A power of two as bf16: the upper half of its bits, the rest is 0.
__device__ __forceinline__ std::uint16_t bf16_bits(float x) { return static_cast<std::uint16_t>(__float_as_uint(x) >> 16); }

/// A thread loads four columns, or four of each 128, of every kStep-th row of its block.
template <int kColumns, int kParts>
struct SplitBlock {
  static constexpr int kRows = split_block_rows(kColumns), kVectors = kColumns > 128 ? kColumns / 128 : 1;
  static constexpr int kLanes = kColumns / kVectors / 4, kStep = kSplitThreads / kLanes, kCount = kRows / kStep;
  static constexpr int kWarps = kSplitThreads / kWarpSize;

  const SplitOperand& g;
  int batch, block;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, first = static_cast<int>(threadIdx.x) / kLanes;
  int rows;  ///< of this block, in bounds
  Vector<float, 4> x[kCount][kVectors];

  __device__ __forceinline__ int column(int v) const { return 4 * lane + 128 * v; }
  __device__ __forceinline__ bool exists(int i, int v) const { return first + i * kStep < rows && column(v) < g.columns; }

  __device__ __forceinline__ SplitBlock(const SplitOperand& operand, int index) : g(operand) {
    batch = g.blocks.divide(index), block = index - batch * static_cast<int>(g.blocks.divisor);
    rows = min(g.rows - block * kRows, kRows);
    const int outer = g.batches.divide(batch), inner = batch - outer * static_cast<int>(g.batches.divisor);
    const float* const from = g.data + outer * g.outer + inner * g.inner;
    const auto line = [&](int row) {
      const int position = g.group.divide(row);
      return from + position * g.row + (row - position * static_cast<int>(g.group.divisor)) * g.head;
    };
    if (g.vector && rows == kRows && g.columns == kColumns &&
        g.group.divisor == 1) {  // one address; others take 300 instructions
      const float* const from_first = line(block * kRows + first);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
#pragma unroll
        for (int v = 0; v < kVectors; ++v) x[i][v] = load_vector<4>(from_first + i * kStep * g.row + column(v));
      return;
    }
    if (g.vector) {  // what is out of bounds repeats the last row or columns: a condition would separate the loads
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float* const of_row = line(block * kRows + min(first + i * kStep, rows - 1));
#pragma unroll
        for (int v = 0; v < kVectors; ++v) x[i][v] = load_vector<4>(of_row + min(column(v), g.columns - 4));
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i)
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
          if (!exists(i, v)) x[i][v] = {};
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i)
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        x[i][v] = {};
        if (first + i * kStep >= rows) continue;
        const float* const of_row = line(block * kRows + first + i * kStep);
#pragma unroll
        for (int c = 0; c < 4; ++c)
          if (column(v) + c < g.columns) x[i][v][c] = of_row[(column(v) + c) * g.column];
      }
  }

  __device__ __forceinline__ half* to() const {
    return static_cast<half*>(g.parts) + (static_cast<std::int64_t>(batch) * g.rows + block * kRows + first) * g.padded;
  }
  __device__ __forceinline__ void store(half* to, int i, int v, const SplitPieces& pieces) const {
    if (first + i * kStep >= rows || column(v) >= g.padded) return;
    to += i * kStep * g.padded + column(v);
    *reinterpret_cast<Vector<std::uint32_t, 2>*>(to) = pieces.high;
    if constexpr (kParts == 2) *reinterpret_cast<Vector<std::uint32_t, 2>*>(to + g.part) = pieces.low;
  }

  /// Queries or keys: one scale per row.
  template <class StoreScale>
  __device__ __forceinline__ unsigned split_rows(const StoreScale& store_scale) const {
    const auto columns = static_cast<unsigned>(g.columns);
    half* const out = to();
    unsigned dense_least = 2 * columns, flags = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      unsigned largest = 0;
#pragma unroll
      for (int v = 0; v < kVectors; ++v)
#pragma unroll
        for (int c = 0; c < 4; ++c) largest = max(largest, magnitude_bits(x[i][v][c]));
      largest = warp_reduce<kLanes>(largest, [](unsigned a, unsigned b) { return max(a, b); });
      const SplitScale scale(largest);
      if (lane == 0) store_scale(first + i * kStep, scale.inverse);
      float scaled[kVectors][4];
      SplitPieces pieces[kVectors];
      bool ordinary = true;  // dense
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int c = 0; c < 4; ++c) scaled[v][c] = x[i][v][c] * scale.scale;
        pieces[v] = split_four(scaled[v]);
        store(out, i, v, pieces[v]);
        ordinary &= !exists(i, v) || smallest_of(scaled[v]) >= 32.f;
      }
      unsigned dense = first + i * kStep < rows ? columns : 2 * columns;
      if (!__all_sync(kFullWarp, ordinary)) {
        unsigned counts = 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
#pragma unroll
          for (int c = 0; c < 4; ++c) counts += count_element<kParts>(x[i][v][c], scaled[v][c], pieces[v], c);
        counts = warp_reduce<kLanes>(counts, [](unsigned a, unsigned b) { return a + b; });
        const unsigned lossy = counts >> 16;
        dense = largest == 0 ? 2 * columns : counts & 0xffffu;
        flags |= (lossy ? kSplitLossy : 0u) | (too_lossy(lossy, g.columns) ? kSplitFailed : 0u);
      }
      dense_least = min(dense_least, dense);
      flags |= scale.failed ? kSplitFailed : 0u;
    }
    return dense_least * 256 / columns | flags;
  }

  /// Values: one scale per column.
  __device__ __forceinline__ unsigned split_columns() const {
    __shared__ Vector<unsigned, 4> largest_of[kWarps][kVectors][kLanes];
    __shared__ unsigned lossy_of[kWarps][kVectors][kLanes];
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const bool leads = static_cast<int>(threadIdx.x) % kWarpSize < kLanes;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      Vector<unsigned, 4> largest{};
#pragma unroll
      for (int c = 0; c < 4; ++c) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) largest[c] = max(largest[c], magnitude_bits(x[i][v][c]));
        if constexpr (kLanes < kWarpSize) largest[c] = max(largest[c], __shfl_xor_sync(kFullWarp, largest[c], kLanes));
      }
      if (leads) largest_of[warp][v][lane] = largest;
    }
    __syncthreads();
    SplitScale scales[kVectors][4];
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        unsigned largest = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) largest = max(largest, largest_of[w][v][lane][c]);
        scales[v][c] = SplitScale(largest);
      }
    half* const out = to();
    bool failed = false;
    unsigned lossy_columns[kVectors] = {};  // a byte per column
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float scaled[kVectors][4];
      SplitPieces pieces[kVectors];
      bool ordinary = true;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int c = 0; c < 4; ++c) scaled[v][c] = x[i][v][c] * scales[v][c].scale;
        pieces[v] = split_four(scaled[v]);
        store(out, i, v, pieces[v]);
        ordinary &= !exists(i, v) || smallest_of(scaled[v]) >= may_be_lossy(kParts);
      }
      if (!__all_sync(kFullWarp, ordinary)) {
        unsigned lossy = 0;
#pragma unroll
        for (int v = 0; v < kVectors; ++v)
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            const unsigned is_lossy = count_element<kParts>(x[i][v][c], scaled[v][c], pieces[v], c) >> 16;
            lossy += is_lossy, lossy_columns[v] += is_lossy << (8 * c);
          }
        lossy = warp_reduce<kLanes>(lossy, [](unsigned a, unsigned b) { return a + b; });
        failed |= too_lossy(lossy, g.columns);
      }
    }
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kLanes < kWarpSize) lossy_columns[v] += __shfl_xor_sync(kFullWarp, lossy_columns[v], kLanes);
      if (leads) lossy_of[warp][v][lane] = lossy_columns[v];
    }
    __syncthreads();
    if (first == 0) {
      const std::int64_t at = static_cast<std::int64_t>(batch) * static_cast<int>(g.blocks.divisor) + block;
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
        unsigned lossy = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) lossy += lossy_of[w][v][lane];
        Vector<std::uint16_t, 4> inverse;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          failed |= scales[v][c].failed || too_lossy(lossy >> (8 * c) & 0xffu, rows);
          inverse[c] = bf16_bits(scales[v][c].inverse);
        }
        store_vector(static_cast<std::uint16_t*>(g.scales) + at * kColumns + column(v), inverse);
      }
    }
    return 512u | (failed ? kSplitFailed : 0u);
  }
};

/// kColumns: head and value size of the tile (kSplitTiles) that uses the parts.
template <int kColumns, int kParts>
__global__ void __launch_bounds__(kSplitThreads, 2) split_operands(const __grid_constant__ SplitOperands g) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (kParts == 1 || kColumns > 128) return;  // kernel.cu's alone
#endif
  ptx::grid_wait();
  ptx::grid_release();
  using Block = SplitBlock<kColumns, kParts>;
  int index = static_cast<int>(blockIdx.x);
  unsigned status;
  unsigned* to;
  if (index < g.query.ctas) {
    const Block block(g.query, index);
    float* const scales =
        static_cast<float*>(g.query.scales) + static_cast<std::int64_t>(block.batch) * g.query.rows + block.block * Block::kRows;
    status = block.split_rows([&](int row, float inverse) {
      if (row < block.rows) scales[row] = inverse;
    });
    to = g.query.status + index;
  } else if ((index -= g.query.ctas) < g.key.ctas) {
    const Block block(g.key, index);
    std::uint16_t* const scales = static_cast<std::uint16_t*>(g.key.scales) + static_cast<std::int64_t>(index) * Block::kRows;
    status = block.split_rows([&](int row, float inverse) { scales[row] = bf16_bits(inverse); });
    to = g.key.status + index;
  } else {
    index -= g.key.ctas;
    status = Block(g.value, index).split_columns();
    to = g.value.status + index;
  }
  __shared__ unsigned statuses[kSplitThreads / kWarpSize];
  status = warp_reduce(status, merge_status);
  if (threadIdx.x % kWarpSize == 0) statuses[threadIdx.x / kWarpSize] = status;
  __syncthreads();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int w = 1; w < kSplitThreads / kWarpSize; ++w) status = merge_status(status, statuses[w]);
    *to = status;
  }
}

/// Called by one warp of each CTA of the attention kernel: finds the key heads with a query, key or value that the parts cannot
/// represent.
__device__ __forceinline__ void judge_heads(const SplitArguments& g) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll 1
  for (int head = static_cast<int>(blockIdx.x); head < g.batches; head += static_cast<int>(gridDim.x)) {
    const int outer = g.inner.divide(head), inner = head - outer * static_cast<int>(g.inner.divisor);
    const auto look = [&](const unsigned* status, const TileArguments::Steps& steps, int blocks) {
      unsigned all = 512;
      status += static_cast<std::int64_t>(inner * steps.inner + outer * steps.outer) * blocks;
#pragma unroll 1
      for (int i = lane; i < blocks; i += kWarpSize) all = merge_status(all, __ldcg(status + i));
      return warp_reduce(all, merge_status);
    };
    const unsigned query = look(g.query_status, g.query_steps, g.query_blocks),
                   key = look(g.key_status, g.key_steps, g.key_blocks), value = look(g.value_status, g.value_steps, g.key_blocks);
    constexpr unsigned kEnough = 256 + 32;
    const bool sparse = ((query | key) & kSplitLossy) != 0 && (query & kSplitDensity) + (key & kSplitDensity) < kEnough;
    if (lane == 0) g.failed[head] = ((query | key | value) & kSplitFailed) != 0 || sparse;
  }
}

}  // namespace xgemm::attention
