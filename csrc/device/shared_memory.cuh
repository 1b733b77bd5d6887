// Where operands lie in dynamic shared memory.
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm {

/// The 128-byte swizzle of TMA and wgmma is a pattern of so many bytes: operands begin at multiples of it. Dynamic shared memory
/// begins at a multiple of 16, so a kernel asks for as many bytes on top.
inline constexpr int kSwizzlePattern = 1024;

/// Bytes from a shared-memory address to the next multiple of kSwizzlePattern.
__device__ __forceinline__ unsigned swizzle_padding(const void* shared) {
  constexpr unsigned kPattern = kSwizzlePattern;
  return (kPattern - (ptx::shared_address(shared) & (kPattern - 1))) & (kPattern - 1);
}

}  // namespace xgemm
