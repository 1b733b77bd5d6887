// Shared-memory barriers of sm_90 (mbarrier): arrivals plus a count of bytes still to be written by TMA. PTX ISA, "mbarrier".
// Own one-line wrappers rather than <cuda/ptx>: that header would add about a second to each translation unit.
#pragma once
#include <cstdint>

namespace xgemm::ptx {

using Barrier = std::uint64_t;  // lives in shared memory

/// The 32-bit shared-memory address that PTX instructions take.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void barrier_init(Barrier* barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

/// After barrier_init, before any use by TMA; a CTA barrier must follow.
__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Arrives, and makes the current phase also wait for `bytes` bytes of TMA traffic.
__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

/// Arrives when all cp.async of this thread so far have landed; counts as one of the barrier's arrivals.
__device__ __forceinline__ void barrier_arrive_copies(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Arrives if `really`, without a branch, at an address from shared_address().
__device__ __forceinline__ void barrier_arrive_if(std::uint32_t address, bool really) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %1, 0;\n@p mbarrier.arrive.shared::cta.b64 _, [%0];\n}" ::"r"(address),
               "r"(static_cast<int>(really))
               : "memory");
}

/// Has the phase of this parity completed? Does not wait.
__device__ __forceinline__ bool barrier_test(const Barrier* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.b32 %0, 1, 0, done;\n}"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}

/// Waits until the phase of the given parity has completed. A fresh barrier is in phase 0: waiting for parity 1 returns at once.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, std::uint32_t parity) {
  const std::uint32_t address = shared_address(barrier);
  std::uint32_t done = 0;
  while (!done) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
        "selp.b32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(address), "r"(parity)
        : "memory");
  }
}

}  // namespace xgemm::ptx
