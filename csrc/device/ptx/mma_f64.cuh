// mma.sync in fp64 (sm_90): a warp's 16 x 8 x 16 product from registers. PTX ISA, "Matrix fragments for mma.m16n8k16 with .f64".
#pragma once

namespace xgemm::ptx {

/// d += a b, by the warp's lanes l. a[h][i]: row l / 4 + 8 h, k = 4 i + l % 4; b[i]: column l / 4, the same k. d[2 h + c]: row
/// l / 4 + 8 h, column 2 (l % 4) + c. Any order of k works if A and B use the same one.
__device__ __forceinline__ void mma_f64(double (&d)[4], const double (&a)[2][4], const double (&b)[4]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0][0]), "d"(a[1][0]), "d"(a[0][1]), "d"(a[1][1]), "d"(a[0][2]), "d"(a[1][2]), "d"(a[0][3]), "d"(a[1][3]), "d"(b[0]),
        "d"(b[1]), "d"(b[2]), "d"(b[3]));
#endif
}

}  // namespace xgemm::ptx
