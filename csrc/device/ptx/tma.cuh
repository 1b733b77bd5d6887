// TMA (cp.async.bulk.tensor): copies of boxes of a tensor described by a tensor map (device/tensor_map.h). PTX ISA,
// "cp.async.bulk.tensor". Coordinates are in elements, innermost first; elements that are out of bounds read as zero, and their
// bytes count on the barrier too.
#pragma once
#include <cuda.h>

#include "device/ptx/bulk_copy.cuh"

namespace xgemm::ptx {

__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<std::uint64_t>(map)) : "memory");
}

/// Box at (c0, c1, c2) to shared memory; completes on `barrier`.
__device__ __forceinline__ void tma_load(void* destination, const CUtensorMap* map, Barrier* barrier, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          shared_address(destination)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}

/// The same for tensors of four and five dims.
__device__ __forceinline__ void tma_load(void* destination, const CUtensorMap* map, Barrier* barrier, int c0, int c1, int c2,
                                         int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::
          "r"(shared_address(destination)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}
__device__ __forceinline__ void tma_load(void* destination, const CUtensorMap* map, Barrier* barrier, int c0, int c1, int c2,
                                         int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], "
      "[%2];" ::"r"(shared_address(destination)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

/// Multicast: the same to every CTA of the cluster whose bit is set in `ctas`, at the corresponding shared-memory address; the
/// bytes complete on that CTA's corresponding barrier.
__device__ __forceinline__ void tma_load_multicast(void* destination, const CUtensorMap* map, Barrier* barrier, int c0, int c1,
                                                   int c2, std::uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, "
      "%5}], [%2], %6;" ::"r"(shared_address(destination)),
      "l"(reinterpret_cast<std::uint64_t>(map)), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "h"(ctas)
      : "memory");
}

/// Box in shared memory to (c0, c1, c2); elements that are out of bounds are not written. Part of this thread's bulk group.
__device__ __forceinline__ void tma_store(const CUtensorMap* map, const void* source, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
                   reinterpret_cast<std::uint64_t>(map)),
               "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2)
               : "memory");
}
/// The same for a tensor of five dims.
__device__ __forceinline__ void tma_store(const CUtensorMap* map, const void* source, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
                   reinterpret_cast<std::uint64_t>(map)),
               "r"(shared_address(source)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
               : "memory");
}

}  // namespace xgemm::ptx
