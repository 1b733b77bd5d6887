// stmatrix (sm_90): a warp's accumulators to shared memory, whole rows of 16 bytes a lane; and a pair of floats. PTX ISA,
// "stmatrix".
#pragma once
#include <cstdint>

namespace xgemm::ptx {

/// Four 8 x 8 matrices of 16-bit elements: lane l gives the shared-memory address of row l % 8 of matrix l / 8 and holds, of
/// matrix i in r[i], the pair of row l / 4 at column 2 (l % 4).
__device__ __forceinline__ void store_matrices(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]),
               "r"(r[3])
               : "memory");
}

/// Two floats to a shared-memory address.
__device__ __forceinline__ void store_pair(std::uint32_t address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

}  // namespace xgemm::ptx
