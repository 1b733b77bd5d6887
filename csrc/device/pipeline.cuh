// A ring of slots in shared memory that producers fill and consumers read. Two mbarriers guard each slot.
//
//   if (threadIdx.x == 0) { pipeline.init(producers, consumers); ptx::fence_barrier_init(); }
//   __syncthreads();
//   producer, for each block:  landed = pipeline.acquire(state); expect bytes on it and load; state.advance();
//   consumer, for each block:  pipeline.wait(state); read the slot; pipeline.release(state.slot); state.advance();
//
// Producers and consumers take the blocks in the same order. The ring continues across tiles.
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm {

/// The next slot and the parity of its phase, which flips each time round the ring. Producer and consumers each keep one.
template <int kStages>
struct PipelineState {
  int slot = 0;
  unsigned parity = 0;

  /// `stages`: slots in use, where a launch uses fewer than kStages.
  __device__ __forceinline__ void advance(int stages = kStages) {
    if (++slot == stages) {
      slot = 0;
      parity ^= 1;
    }
  }
};

/// full[s] completes when slot s holds its data, empty[s] when all consumers have released it.
template <int kStages>
struct Pipeline {
  static constexpr int kBytes = 2 * kStages * static_cast<int>(sizeof(ptx::Barrier));  ///< of shared memory, for the barriers

  ptx::Barrier* full;  ///< kBytes of shared memory, at a multiple of 8 bytes; the memory after it begins at empty + kStages
  ptx::Barrier* empty = full + kStages;

  /// Called by one thread. `producers`: arrivals that fill a slot (with TMA 1, the one that expects the bytes); `consumers`:
  /// arrivals that empty it.
  __device__ __forceinline__ void init(unsigned producers, unsigned consumers) const {
    for (int s = 0; s < kStages; ++s) {
      ptx::barrier_init(&full[s], producers);
      ptx::barrier_init(&empty[s], consumers);
    }
  }

  /// Producer: waits until the slot is empty (at once in the first round). Returns the barrier on which its loads complete.
  __device__ __forceinline__ ptx::Barrier* acquire(const PipelineState<kStages>& at) const {
    ptx::Barrier* const landed = &full[at.slot];
    ptx::barrier_wait(&empty[at.slot], at.parity ^ 1);
    return landed;
  }

  /// Producer: is the slot empty? Does not wait.
  __device__ __forceinline__ bool free(const PipelineState<kStages>& at) const {
    return ptx::barrier_test(&empty[at.slot], at.parity ^ 1);
  }

  /// Consumer: waits until the slot is full.
  __device__ __forceinline__ void wait(const PipelineState<kStages>& at) const { ptx::barrier_wait(&full[at.slot], at.parity); }
  /// Consumer: is the slot full? Does not wait.
  __device__ __forceinline__ bool ready(const PipelineState<kStages>& at) const {
    return ptx::barrier_test(&full[at.slot], at.parity);
  }

  /// Consumer: one arrival. The calling thread, and the threads for which it arrives, must have finished reading the slot. If
  /// TMA or a bulk copy refills the slot, each thread that read it by plain loads or ldmatrix calls fence_async_shared() first,
  /// unless instructions before the arrival have used all loaded values.
  __device__ __forceinline__ void release(int slot) const { ptx::barrier_arrive(&empty[slot]); }
};

}  // namespace xgemm
