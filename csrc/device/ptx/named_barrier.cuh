// An arrival at a named barrier (warpgroup.cuh) that follows what was computed before it. PTX ISA, "bar.arrive".
#pragma once

namespace xgemm::ptx {

/// Arrives once `computed`, which is never -1, is known: ptxas moves arithmetic across a barrier that does not depend on it.
__device__ __forceinline__ void named_barrier_arrive_after(float computed, int id, int threads) {
  asm volatile("{\n.reg .pred known;\nsetp.neu.f32 known, %0, 0fBF800000;\n@known bar.arrive %1, %2;\n}" ::"f"(computed), "r"(id),
               "r"(threads)
               : "memory");
}

}  // namespace xgemm::ptx
