// bf16x3: sums of a consumer warpgroup (C^T in registers, as wgmma leaves it) that go to C without shared memory.
#pragma once
#include "matmul/bf16x3/fragments.cuh"

namespace xgemm::matmul::bf16x3 {

/// With swap_ab and nothing fused, even `ld`: four lanes hold 32 bytes of a row, so nothing is gained by shared memory.
template <class Config>
__device__ __forceinline__ void store_registers(const float (&sums)[Config::kValue.rows / 2], float* out, int ld, float alpha,
                                                const FragmentPlace<Config>& place, int rows, int columns) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int line = h ? place.second : place.first;
    float* const to = out + static_cast<std::int64_t>(line) * ld + 2 * place.quad;
#pragma unroll
    for (int j = 0; j < Config::kValue.rows / 8; ++j)
      if (line < columns && 8 * j + 2 * place.quad < rows)
        store_vector(to + 8 * j,
                     Vector<float, 2>{{fmaf(alpha, sums[4 * j + 2 * h], 0.f), fmaf(alpha, sums[4 * j + 2 * h + 1], 0.f)}});
  }
}

}  // namespace xgemm::matmul::bf16x3
