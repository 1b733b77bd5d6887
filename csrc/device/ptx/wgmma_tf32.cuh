// wgmma.mma_async (sm_90a) of tf32: as wgmma.cuh, k is 8 numbers of 32 bits, whose lowest 13 bits are ignored. B is K-major in
// swizzled shared memory (OperandLayout), A too or in registers: PTX has no MN-major form. N is twice the number of accumulators.
#pragma once
#include "device/ptx/wgmma.cuh"

namespace xgemm::ptx {

#define XGEMM_R32                                                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, " \
  "%26, %27, %28, %29, %30, %31"
#define XGEMM_R64                                                                                                              \
  XGEMM_R32                                                                                                                    \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, " \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define XGEMM_R128                                                                                                             \
  XGEMM_R64                                                                                                                    \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, "   \
  "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define XGEMM_D8(i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define XGEMM_D32(i) XGEMM_D8(i), XGEMM_D8(i + 8), XGEMM_D8(i + 16), XGEMM_D8(i + 24)

// a0 to a4: the numbers of the operands after D. A in registers: a[0] holds row l / 4, k l % 4; a[1] row l / 4 + 8; a[2], a[3]
// the same rows at k + 4; they must not change before the wait.
#define XGEMM_WGMMA_TF32(n, registers, a0, a1, a2, a3, a4, a5, ...)                                                           \
  __device__ __forceinline__ void wgmma_tf32(float(&d)[n / 2], std::uint64_t desc_a, std::uint64_t desc_b, bool accumulate) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " a2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n                          \
                 "k8.f32.tf32.tf32 {" registers "}, " a0 ", " a1 ", p, 1, 1;\n}"                                              \
                 : __VA_ARGS__                                                                                                \
                 : "l"(desc_a), "l"(desc_b), "r"(static_cast<int>(accumulate)));                                              \
  }                                                                                                                           \
  __device__ __forceinline__ void wgmma_tf32(float(&d)[n / 2], const std::uint32_t(&a)[4], std::uint64_t desc_b,              \
                                             bool accumulate) {                                                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " a5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n                          \
                 "k8.f32.tf32.tf32 {" registers "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " a4 ", p, 1, 1;\n}"                    \
                 : __VA_ARGS__                                                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b), "r"(static_cast<int>(accumulate)));               \
  }
XGEMM_WGMMA_TF32(64, XGEMM_R32, "%32", "%33", "%34", "%35", "%36", "%37", XGEMM_D32(0))
XGEMM_WGMMA_TF32(128, XGEMM_R64, "%64", "%65", "%66", "%67", "%68", "%69", XGEMM_D32(0), XGEMM_D32(32))
XGEMM_WGMMA_TF32(256, XGEMM_R128, "%128", "%129", "%130", "%131", "%132", "%133", XGEMM_D32(0), XGEMM_D32(32), XGEMM_D32(64),
                 XGEMM_D32(96))
#undef XGEMM_WGMMA_TF32
#undef XGEMM_D32
#undef XGEMM_D8
#undef XGEMM_R128
#undef XGEMM_R64
#undef XGEMM_R32

}  // namespace xgemm::ptx
