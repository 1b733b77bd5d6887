// An arrival at a named barrier (warpgroup.cuh) that the compiler keeps behind a computation. PTX ISA, "bar.arrive".
#pragma once

namespace xgemm::ptx {

/// Arrives after `computed`, which is never -1, is known. Without that dependence ptxas moves arithmetic across the barrier.
__device__ __forceinline__ void named_barrier_arrive_after(float computed, int id, int threads) {
  asm volatile("{\n.reg .pred known;\nsetp.neu.f32 known, %0, 0fBF800000;\n@known bar.arrive %1, %2;\n}" ::"f"(computed), "r"(id),
               "r"(threads)
               : "memory");
}

}  // namespace xgemm::ptx
