// Roles of warpgroups on sm_90a: register hand-over, one elected thread, named barriers.
#pragma once
#include <cstdint>

namespace xgemm::ptx {

/// Gives registers of this warpgroup back to the CTA's pool, or takes them from it. Every warp of the warpgroup must call it.
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void acquire_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// True in exactly one lane of a converged warp.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.b32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

/// Named barriers 1 to 15 (0 is __syncthreads): `threads` counts arrivals and waiters together.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
/// Arrives after `computed`, which is never -1, is known. Without that dependence ptxas moves arithmetic across the barrier.
__device__ __forceinline__ void named_barrier_arrive_after(float computed, int id, int threads) {
  asm volatile("{\n.reg .pred known;\nsetp.neu.f32 known, %0, 0fBF800000;\n@known bar.arrive %1, %2;\n}" ::"f"(computed), "r"(id),
               "r"(threads)
               : "memory");
}
/// Waits for all `threads`; returns true to all of them if `condition` is true for at least one.
__device__ __forceinline__ bool named_barrier_or(int id, int threads, bool condition) {
  std::uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred p, q;\n"
      "setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.or.pred.aligned q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<std::uint32_t>(condition)), "r"(id), "r"(threads)
      : "memory");
  return any != 0;
}

}  // namespace xgemm::ptx
