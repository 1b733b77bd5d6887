// The lanes of a warp. Reductions over them have a fixed order: the same inputs give the same bits on every run.
#pragma once

namespace xgemm {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xffffffffu;

/// Lane 0's x. The broadcast tells the compiler that the value is warp-uniform, so it keeps TMA's operands and descriptors in
/// uniform registers instead of looping over the lanes.
__device__ __forceinline__ int warp_uniform(int x) { return __shfl_sync(kFullWarp, x, 0); }

/// Reads threadIdx.x again, so that values computed from it stay out of registers and spills through a main loop.
__device__ __forceinline__ int thread_index() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}
/// The same of blockIdx.x.
__device__ __forceinline__ int block_index() {
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
}

/// Butterfly reduction over groups of `Width` consecutive lanes; every lane of a group gets the result. `op` must be commutative.
/// T is a type that __shfl_xor_sync takes.
template <int Width = kWarpSize, class T, class Op>
__device__ __forceinline__ T warp_reduce(T value, Op op) {
#pragma unroll
  for (int offset = Width / 2; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(kFullWarp, value, offset));
  return value;
}

/// The same over groups of `lanes` lanes (a power of two up to 32), known at run time.
template <class X, class F>
__device__ __forceinline__ X reduce_lanes(X x, int lanes, F op) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) x = op(x, __shfl_xor_sync(kFullWarp, x, offset));
  return x;
}

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
