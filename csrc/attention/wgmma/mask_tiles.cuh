// Classifies a mask for the tensor-core kernel, one CTA per tile of rows by tile of keys, and packs a boolean one.
//
//   Operands  the mask with any strides, bool, half, bf16 or fp32. Threads: two per row of the tile.
//   Results   WgmmaMask::classes; for bool also WgmmaMask::bits, in the order of wgmma's accumulators.
//   Floor     reads the mask once, without broadcast dims; writes an eighth of a byte per element (bool).
#pragma once
#include "attention/wgmma/arguments.h"
#include "attention/wgmma/tile.h"
#include "device/numeric.cuh"
#include "device/vector.cuh"

namespace xgemm::attention {

/// Bit i: is byte i of the word not 0?
__device__ __forceinline__ unsigned nonzero_bytes(unsigned word) {
  const unsigned tops = (word | ((word & 0x7f7f7f7fu) + 0x7f7f7f7fu)) >> 7 & 0x01010101u;
  return tops * 0x10204080u >> 28;
}

template <int kRows, int kKeys>
__global__ void __launch_bounds__(2 * kRows) classify_mask(const __grid_constant__ MaskTilesArguments m) {
  constexpr int kChunks = kKeys / 16;  // of 16 keys
  __shared__ std::uint16_t seen[kRows][kChunks];
  const int n = static_cast<int>(blockIdx.x) % m.mask.key_tiles, mask_tile = static_cast<int>(blockIdx.x) / m.mask.key_tiles;
  int rest = mask_tile;
  const int row_tile = rest % m.row_tiles;
  rest /= m.row_tiles;
  const int tile_head = rest % m.heads;
  rest /= m.heads;
  const int inner = rest % m.inner, outer = rest / m.inner;
  const auto& strides = m.mask.strides;
  const std::int64_t tile_at = outer * strides.outer + inner * strides.inner + tile_head * strides.head +
                               static_cast<std::int64_t>(n) * kKeys * strides.column;

  bool opens = false, closes = false, changes = false;  // some key is seen; some key is not; some score changes
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kRows * kChunks; i += 2 * kRows) {
    const int row = i / kChunks, chunk = i % kChunks, packed_row = row_tile * m.tile_rows + row;
    const int keys = row < m.tile_rows && packed_row < m.rows ? min(m.sk - n * kKeys - 16 * chunk, 16) : 0;
    const std::int64_t at = tile_at + packed_row / m.pack * strides.row + packed_row % m.pack * (m.pack > 1 ? strides.head : 0) +
                            16 * chunk * strides.column;
    unsigned bits = 0;
    if (m.mask.dtype == DType::boolean) {
      const auto* const from = static_cast<const unsigned char*>(m.mask.values) + at;
      if (m.vector && keys == 16) {
        const auto words = load_vector<4>(reinterpret_cast<const unsigned*>(from));
#pragma unroll
        for (int w = 0; w < 4; ++w) bits |= nonzero_bytes(words[w]) << (4 * w);
      } else {
        for (int k = 0; k < keys; ++k) bits |= (from[k * strides.column] != 0 ? 1u : 0u) << k;
      }
      opens |= bits != 0;
      closes |= bits != (1u << max(keys, 0)) - 1;
      seen[row][chunk] = static_cast<std::uint16_t>(bits);
    } else {
      const auto look = [&](auto type) {
        using M = typename decltype(type)::type;
        const M* const from = static_cast<const M*>(m.mask.values) + at;
        const auto see = [&](M element) {
          const auto value = convert<float>(element);
          closes |= value == -INFINITY, opens |= value != -INFINITY, changes |= value != 0.f;
        };
        if (m.vector && keys == 16) {
          constexpr int kWidth = kVectorWidth<M>;
          Vector<M, kWidth> vectors[16 / kWidth];
#pragma unroll
          for (int v = 0; v < 16 / kWidth; ++v) vectors[v] = load_vector<kWidth>(from + v * kWidth);
#pragma unroll
          for (int k = 0; k < 16; ++k) see(vectors[k / kWidth][k % kWidth]);
        } else {
          for (int k = 0; k < keys; ++k) see(from[k * strides.column]);
        }
      };
      if (m.mask.dtype == DType::f32)
        look(Type<float>{});
      else if (m.mask.dtype == DType::f16)
        look(Type<half>{});
      else
        look(Type<bf16>{});
    }
  }
  opens = __syncthreads_or(opens), closes = __syncthreads_or(closes), changes = __syncthreads_or(changes);
  const std::int64_t tile = static_cast<std::int64_t>(mask_tile) * m.mask.key_tiles + n;
  if (threadIdx.x == 0) m.mask.classes[tile] = !opens ? kEmpty : closes || changes ? kMixed : kFull;
  if (m.mask.dtype != DType::boolean) return;

  const int lane = static_cast<int>(threadIdx.x) % 32, first = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  unsigned words[2] = {0, 0};
#pragma unroll
  for (int h = 0; h < 2; ++h)
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) words[h] |= (seen[first + 8 * h][j / 2] >> (j % 2 * 8 + 2 * (lane % 4)) & 3u) << (2 * j);
  m.mask.bits[tile * (2 * kRows) + threadIdx.x] = {words[0], words[1]};
}

}  // namespace xgemm::attention
