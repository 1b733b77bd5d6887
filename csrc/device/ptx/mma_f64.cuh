// mma.sync in fp64: a warp's product from registers. PTX ISA, "Matrix fragments for mma.m8n8k4 with .f64", "mma.m16n8k16".
#pragma once

namespace xgemm::ptx {

/// d += a b, 16 x 8 x 16 (sm_90), by the warp's lanes l. a[h][i]: row l / 4 + 8 h, k = 4 i + l % 4; b[i]: column l / 4, the same
/// k; d[2 h + c]: row l / 4 + 8 h, column 2 (l % 4) + c.
__device__ __forceinline__ void mma_m16n8k16(double (&d)[4], const double (&a)[2][4], const double (&b)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};"
      : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
      : "d"(a[0][0]), "d"(a[1][0]), "d"(a[0][1]), "d"(a[1][1]), "d"(a[0][2]), "d"(a[1][2]), "d"(a[0][3]), "d"(a[1][3]), "d"(b[0]),
        "d"(b[1]), "d"(b[2]), "d"(b[3]));
}

/// d += a b, 8 x 8 x 4 (sm_80). a: row l / 4, k = l % 4; b: column l / 4, k = l % 4; d[c]: row l / 4, column 2 (l % 4) + c.
__device__ __forceinline__ void mma_m8n8k4(double (&d)[2], double a, double b) {
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1])
      : "d"(a), "d"(b));
}

}  // namespace xgemm::ptx
