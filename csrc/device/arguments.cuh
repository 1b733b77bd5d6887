// A kernel's arguments and the constant cache.
#pragma once
#include "device/warp.cuh"

namespace xgemm {

/// Prefetches the kernel's arguments into the constant cache, all lines of 64 bytes at once. After a launch they are in no
/// cache, and later reads would miss one line after the other. Called by a whole warp.
template <class Arguments>
__device__ __forceinline__ void fetch_arguments(const Arguments& g) {
  constexpr int kLine = 64, kLines = static_cast<int>(sizeof(g)) / kLine;
  static_assert(kLines <= kWarpSize);
  const int word = reinterpret_cast<const int*>(&g)[min(static_cast<int>(threadIdx.x) % kWarpSize, kLines - 1) * (kLine / 4)];
  asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %0, 0x7fffabcd;\n@p nanosleep.u32 1;\n}" ::"r"(word));  // its only use
}

}  // namespace xgemm
