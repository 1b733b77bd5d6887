// stmatrix (sm_90): stores a warp's accumulators to shared memory, 16-byte rows. Also loads and stores of a few bytes by
// address. PTX ISA, "stmatrix".
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

/// The same for the matrices' columns: lane l gives the address of column l % 8 of matrix l / 8.
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t address, const std::uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
}

/// Stores two floats to a shared-memory address.
__device__ __forceinline__ void store_pair(std::uint32_t address, float x, float y) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(x), "f"(y) : "memory");
}

/// Loads from a shared-memory address: the compiler would convert a pointer again in each loop, which is slow in a cluster.
__device__ __forceinline__ uint4 load_shared16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ unsigned load_shared4(std::uint32_t address) {
  unsigned v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ unsigned load_shared2(std::uint32_t address) {
  unsigned v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float load_shared_float(std::uint32_t address) {
  float v;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}

/// Stores 16 bytes to global memory if `really`, without a branch, by one instruction, which the compiler might split into four.
__device__ __forceinline__ void store_global16_if(void* to, const uint4& v, bool really) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\n@p st.global.v4.u32 [%0], {%1, %2, %3, %4};\n}" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(static_cast<int>(really))
               : "memory");
}

}  // namespace xgemm::ptx
