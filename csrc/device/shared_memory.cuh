// Alignment of operands in dynamic shared memory.
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm {

/// Bytes after which the 128-byte swizzle of TMA and wgmma repeats: operands begin at multiples of it. Dynamic shared memory
/// begins at a multiple of 16 only, so a kernel requests this many bytes more.
inline constexpr int kSwizzlePattern = 1024;

/// Bytes from a shared-memory address to the next multiple of kSwizzlePattern.
__device__ __forceinline__ unsigned swizzle_padding(const void* shared) {
  constexpr unsigned kPattern = kSwizzlePattern;
  return (kPattern - (ptx::shared_address(shared) & (kPattern - 1))) & (kPattern - 1);
}

}  // namespace xgemm
