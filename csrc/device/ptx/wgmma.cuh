// wgmma.mma_async (sm_90a): D (64 x N, fp32 registers of a warpgroup) += A (64 x k) * B (k x N), both in swizzled shared memory,
// or A in registers.
// PTX ISA, "Asynchronous warpgroup level matrix instructions". k is 32 bytes: 16 half-precision elements or 8 of tf32.
//
// Registers: thread t of the warpgroup (warp w = t / 32, lane l) holds in d[4 j + 2 h + c] the element of row 16 w + l / 4 + 8 h
// and column 8 j + 2 (l % 4) + c.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "device/vector.cuh"

namespace xgemm::ptx {

/// How an operand tile lies in shared memory. K-major: rows of kRowBytes (64 or 128) bytes along k. MN-major: blocks of 64
/// elements along m or n; in a block, each k is a row of 128 bytes. Swizzled as TMA's mode of that width does; blocks start at
/// multiples of 1024.
template <bool kKMajor, int kRowBytes, int kBlockBytes>
struct OperandLayout {
  static_assert(kRowBytes == 128 || (kKMajor && kRowBytes == 64));
  // Bits 62-63 name the swizzle (1: 128 bytes, 2: 64), 32-45 the stride between groups of eight rows, 16-29 that between MN-major
  // blocks, 0-13 the start; strides and start in units of 16 bytes.
  static constexpr std::uint64_t kDescriptor = (std::uint64_t{kRowBytes == 128 ? 1 : 2} << 62) |
                                               (std::uint64_t{8 * kRowBytes / 16} << 32) |
                                               (std::uint64_t{kKMajor ? 1 : kBlockBytes / 16} << 16);
  /// From one wgmma's k to the next: 32 bytes along the row, or 16 rows.
  static constexpr int kStepBytes = kKMajor ? 32 : 16 * kRowBytes;

  /// The address within the CTA: in a cluster its upper bits name the CTA and would overwrite the stride fields.
  __device__ __forceinline__ static std::uint64_t descriptor(std::uint32_t address) {
    return kDescriptor | (address & 0x3ffffu) >> 4;
  }
  /// The descriptor's lower half, the only one that depends on the address; and the whole descriptor, `bytes` further on.
  __device__ __forceinline__ static std::uint32_t descriptor_low(std::uint32_t address) {
    return static_cast<std::uint32_t>(descriptor(address));
  }
  __device__ __forceinline__ static std::uint64_t descriptor(std::uint32_t low, int bytes) {
    return (kDescriptor >> 32 << 32) | (low + static_cast<unsigned>(bytes / 16));
  }
};

/// Loads for register operands; from an address, so that a swizzled place costs one exclusive-or and no long-lived register.
__device__ __forceinline__ Vector<float, 2> load_pair(std::uint32_t address) {
  Vector<float, 2> pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair[0]), "=f"(pair[1]) : "r"(address) : "memory");
  return pair;
}

/// Needed before the first wgmma, and after other instructions have written registers that a wgmma will use.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/// Pins accumulators to this point of the program: the compiler sees no link between a wait and the registers it makes valid.
template <int kCount>
__device__ __forceinline__ void wgmma_pin(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
/// The same for A in registers, before wgmma_fence(): if an instruction sets one later, ptxas serialises the wgmmas (C7513).
template <int kCount>
__device__ __forceinline__ void wgmma_pin(std::uint32_t (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(a[i])::"memory");
}
/// Waits until at most kPending of the committed groups are unfinished.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps a following wait behind the computation of `x`, which is never negative. ptxas moves a wait in front of arithmetic
/// that should overlap with the products, but not across an instruction that may let the thread sleep. (It never sleeps.)
__device__ __forceinline__ void stay_behind(float x) {
  asm volatile(
      "{\n"
      ".reg .pred negative;\n"
      "setp.lt.f32 negative, %0, 0f00000000;\n"
      "@negative nanosleep.u32 1;\n"
      "}" ::"f"(x)
      : "memory");
}

/// One instruction; N is twice the number of accumulators. With accumulate = false, D is overwritten.
template <class Element, bool kKMajorA, bool kKMajorB>
struct Wgmma;

// The registers of D: their numbers, and the operands.
#define XGEMM_R4 "%0, %1, %2, %3"
#define XGEMM_R8 XGEMM_R4 ", %4, %5, %6, %7"
#define XGEMM_R16 XGEMM_R8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define XGEMM_R32 XGEMM_R16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define XGEMM_R40 XGEMM_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define XGEMM_R48 XGEMM_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define XGEMM_R56 XGEMM_R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define XGEMM_R64 XGEMM_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define XGEMM_R72 XGEMM_R64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define XGEMM_R80 XGEMM_R72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define XGEMM_R88 XGEMM_R80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define XGEMM_R96 XGEMM_R88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define XGEMM_R104 XGEMM_R96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define XGEMM_R112 XGEMM_R104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define XGEMM_R120 XGEMM_R112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define XGEMM_R128 XGEMM_R120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define XGEMM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define XGEMM_D8(i) XGEMM_D4(i), XGEMM_D4(i + 4)
#define XGEMM_D16 XGEMM_D8(0), XGEMM_D8(8)
#define XGEMM_D32 XGEMM_D16, XGEMM_D8(16), XGEMM_D8(24)
#define XGEMM_D40 XGEMM_D32, XGEMM_D8(32)
#define XGEMM_D48 XGEMM_D40, XGEMM_D8(40)
#define XGEMM_D56 XGEMM_D48, XGEMM_D8(48)
#define XGEMM_D64 XGEMM_D56, XGEMM_D8(56)
#define XGEMM_D72 XGEMM_D64, XGEMM_D8(64)
#define XGEMM_D80 XGEMM_D72, XGEMM_D8(72)
#define XGEMM_D88 XGEMM_D80, XGEMM_D8(80)
#define XGEMM_D96 XGEMM_D88, XGEMM_D8(88)
#define XGEMM_D104 XGEMM_D96, XGEMM_D8(96)
#define XGEMM_D112 XGEMM_D104, XGEMM_D8(104)
#define XGEMM_D120 XGEMM_D112, XGEMM_D8(112)
#define XGEMM_D128 XGEMM_D120, XGEMM_D8(120)

// a, b, p, ta and tb: the numbers of the operands after D.
#define XGEMM_WGMMA(n, type, registers, a, b, p, ta, tb, outputs)                                                             \
  __device__ __forceinline__ static void mma(float(&d)[n / 2], std::uint64_t desc_a, std::uint64_t desc_b, bool accumulate) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type  \
                 " {" registers "}, " a ", " b ", p, 1, 1, " ta ", " tb ";\n}"                                                \
                 : outputs                                                                                                    \
                 : "l"(desc_a), "l"(desc_b), "r"(static_cast<int>(accumulate)), "n"(!kKMajorA), "n"(!kKMajorB));              \
  }
#define XGEMM_WGMMA_HALF(Type, name)                                                       \
  template <bool kKMajorA, bool kKMajorB>                                                  \
  struct Wgmma<Type, kKMajorA, kKMajorB> {                                                 \
    XGEMM_WGMMA(32, name, XGEMM_R16, "%16", "%17", "%18", "%19", "%20", XGEMM_D16)         \
    XGEMM_WGMMA(64, name, XGEMM_R32, "%32", "%33", "%34", "%35", "%36", XGEMM_D32)         \
    XGEMM_WGMMA(80, name, XGEMM_R40, "%40", "%41", "%42", "%43", "%44", XGEMM_D40)         \
    XGEMM_WGMMA(96, name, XGEMM_R48, "%48", "%49", "%50", "%51", "%52", XGEMM_D48)         \
    XGEMM_WGMMA(112, name, XGEMM_R56, "%56", "%57", "%58", "%59", "%60", XGEMM_D56)        \
    XGEMM_WGMMA(128, name, XGEMM_R64, "%64", "%65", "%66", "%67", "%68", XGEMM_D64)        \
    XGEMM_WGMMA(144, name, XGEMM_R72, "%72", "%73", "%74", "%75", "%76", XGEMM_D72)        \
    XGEMM_WGMMA(160, name, XGEMM_R80, "%80", "%81", "%82", "%83", "%84", XGEMM_D80)        \
    XGEMM_WGMMA(176, name, XGEMM_R88, "%88", "%89", "%90", "%91", "%92", XGEMM_D88)        \
    XGEMM_WGMMA(192, name, XGEMM_R96, "%96", "%97", "%98", "%99", "%100", XGEMM_D96)       \
    XGEMM_WGMMA(208, name, XGEMM_R104, "%104", "%105", "%106", "%107", "%108", XGEMM_D104) \
    XGEMM_WGMMA(224, name, XGEMM_R112, "%112", "%113", "%114", "%115", "%116", XGEMM_D112) \
    XGEMM_WGMMA(240, name, XGEMM_R120, "%120", "%121", "%122", "%123", "%124", XGEMM_D120) \
    XGEMM_WGMMA(256, name, XGEMM_R128, "%128", "%129", "%130", "%131", "%132", XGEMM_D128) \
  }
XGEMM_WGMMA_HALF(__half, "f16");
XGEMM_WGMMA_HALF(__nv_bfloat16, "bf16");
#undef XGEMM_WGMMA_HALF
#undef XGEMM_WGMMA

/// A in registers: a[0] holds row l / 4, k 2 (l % 4) and the next one (lower half first); a[1] row l / 4 + 8; a[2], a[3] the same
/// rows at k + 8. The registers of A must not change before the wait.
template <class Element, bool kKMajorB = true>
struct WgmmaRegisters;
#define XGEMM_WGMMA_REGISTERS(n, type, registers, a, b, p, tb, outputs)                                                         \
  __device__ __forceinline__ static void mma(float(&d)[n / 2], const std::uint32_t(&x)[4], std::uint64_t desc_b,                \
                                             bool accumulate) {                                                                 \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type    \
                 " {" registers "}, {" a "}, " b ", p, 1, 1, " tb ";\n}"                                                        \
                 : outputs                                                                                                      \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(desc_b), "r"(static_cast<int>(accumulate)), "n"(!kKMajorB)); \
  }
#define XGEMM_WGMMA_REGISTERS_HALF(Type, name)                                                                 \
  template <bool kKMajorB>                                                                                     \
  struct WgmmaRegisters<Type, kKMajorB> {                                                                      \
    XGEMM_WGMMA_REGISTERS(32, name, XGEMM_R16, "%16, %17, %18, %19", "%20", "%21", "%22", XGEMM_D16)           \
    XGEMM_WGMMA_REGISTERS(64, name, XGEMM_R32, "%32, %33, %34, %35", "%36", "%37", "%38", XGEMM_D32)           \
    XGEMM_WGMMA_REGISTERS(96, name, XGEMM_R48, "%48, %49, %50, %51", "%52", "%53", "%54", XGEMM_D48)           \
    XGEMM_WGMMA_REGISTERS(128, name, XGEMM_R64, "%64, %65, %66, %67", "%68", "%69", "%70", XGEMM_D64)          \
    XGEMM_WGMMA_REGISTERS(192, name, XGEMM_R96, "%96, %97, %98, %99", "%100", "%101", "%102", XGEMM_D96)       \
    XGEMM_WGMMA_REGISTERS(256, name, XGEMM_R128, "%128, %129, %130, %131", "%132", "%133", "%134", XGEMM_D128) \
  }
XGEMM_WGMMA_REGISTERS_HALF(__half, "f16");
XGEMM_WGMMA_REGISTERS_HALF(__nv_bfloat16, "bf16");
#undef XGEMM_WGMMA_REGISTERS_HALF
#undef XGEMM_WGMMA_REGISTERS

/// tf32: k is 8 numbers of 32 bits, whose lowest 13 bits are ignored. B is K-major, A too or in registers: PTX has no MN-major
/// form. A in registers: a[0] holds row l / 4, k l % 4; a[1] row l / 4 + 8; a[2], a[3] the same rows at k + 4; they must not
/// change before the wait.
#define XGEMM_WGMMA_TF32(n, registers, a0, a1, a2, a3, a4, a5, outputs)                                                       \
  __device__ __forceinline__ void wgmma_tf32(float(&d)[n / 2], std::uint64_t desc_a, std::uint64_t desc_b, bool accumulate) { \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " a2 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n                          \
                 "k8.f32.tf32.tf32 {" registers "}, " a0 ", " a1 ", p, 1, 1;\n}"                                              \
                 : outputs                                                                                                    \
                 : "l"(desc_a), "l"(desc_b), "r"(static_cast<int>(accumulate)));                                              \
  }                                                                                                                           \
  __device__ __forceinline__ void wgmma_tf32(float(&d)[n / 2], const std::uint32_t(&a)[4], std::uint64_t desc_b,              \
                                             bool accumulate) {                                                               \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " a5 ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n                          \
                 "k8.f32.tf32.tf32 {" registers "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " a4 ", p, 1, 1;\n}"                    \
                 : outputs                                                                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(desc_b), "r"(static_cast<int>(accumulate)));               \
  }
XGEMM_WGMMA_TF32(64, XGEMM_R32, "%32", "%33", "%34", "%35", "%36", "%37", XGEMM_D32)
XGEMM_WGMMA_TF32(128, XGEMM_R64, "%64", "%65", "%66", "%67", "%68", "%69", XGEMM_D64)
XGEMM_WGMMA_TF32(256, XGEMM_R128, "%128", "%129", "%130", "%131", "%132", "%133", XGEMM_D128)
#undef XGEMM_WGMMA_TF32

}  // namespace xgemm::ptx
