// mma.sync and ldmatrix (sm_80 and later): a warp's 16 x 8 x 16 product from registers. PTX ISA, "Matrix fragments for
// mma.m16n8k16".
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace xgemm::ptx {

/// Four 8 x 8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 and gets, of matrix i in r[i],
/// the pair of row l / 4 at column 2 (l % 4).
__device__ __forceinline__ void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix(std::uint32_t (&r)[4], const void* row) {
  ldmatrix(r, static_cast<std::uint32_t>(__cvta_generic_to_shared(row)));
}

/// The same with each matrix transposed: r[i] gets the elements at rows 2 (l % 4) and the next, column l / 4.
__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// d += a b of T, half or bf16. a: matrices (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15); b: columns as rows, k 0-7
/// and 8-15. d[2 h + c]: row l / 4 + 8 h, column 2 (l % 4) + c.
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

#define XGEMM_MMA(Type, name)                                                                                               \
  template <>                                                                                                               \
  __device__ __forceinline__ void mma<Type>(float(&d)[4], const std::uint32_t(&a)[4], std::uint32_t b0, std::uint32_t b1) { \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name                                                              \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                              \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                                    \
  }
XGEMM_MMA(__half, "f16")
XGEMM_MMA(__nv_bfloat16, "bf16")
#undef XGEMM_MMA

}  // namespace xgemm::ptx
