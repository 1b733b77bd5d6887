// mma.sync and ldmatrix (sm_80 and later): a warp's product of 16 x 8 from registers, 32 bytes of k deep. PTX ISA, "Matrix
// fragments for mma.m16n8k16" and "mma.m16n8k8".
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
__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_transposed(std::uint32_t (&r)[4], const void* row) {
  ldmatrix_transposed(r, static_cast<std::uint32_t>(__cvta_generic_to_shared(row)));
}

/// d += a b of T: half or bf16, 16 k; or float, 8 k of numbers in tf32. a: matrices (rows 0-7, first half of k), (8-15, first),
/// (0-7, second), (8-15, second); b: columns as rows, both halves of k. A lane's register of a matrix: row l / 4, from k
/// 2 (l % 4) on a pair, or k l % 4. d[2 h + c]: row l / 4 + 8 h, column 2 (l % 4) + c.
template <class T>
__device__ __forceinline__ void mma(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

#define XGEMM_MMA(Type, shape, name)                                                                                        \
  template <>                                                                                                               \
  __device__ __forceinline__ void mma<Type>(float(&d)[4], const std::uint32_t(&a)[4], std::uint32_t b0, std::uint32_t b1) { \
    asm("mma.sync.aligned." shape ".row.col.f32." name "." name                                                             \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                              \
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                                    \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                                    \
  }
XGEMM_MMA(__half, "m16n8k16", "f16")
XGEMM_MMA(__nv_bfloat16, "m16n8k16", "bf16")
XGEMM_MMA(float, "m16n8k8", "tf32")
#undef XGEMM_MMA

/// Rounds fp32 to tf32, to nearest: ties to even, as TMA does, or on older GPUs away from zero.
__device__ __forceinline__ std::uint32_t round_to_tf32(std::uint32_t x) {
  std::uint32_t y;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(__uint_as_float(x)));
#endif
  return y;
}

}  // namespace xgemm::ptx
