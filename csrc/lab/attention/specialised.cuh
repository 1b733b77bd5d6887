// What steps 06 and 07 share: a producer, two rings of two tiles (keys, values), and two consumers, whose loop is the step's.
// sm_90a only.
#pragma once
#include "device/pipeline.cuh"
#include "lab/attention/hopper.cuh"

namespace xgemm::lab::attention {

inline constexpr int kConsumers = 2, kBlockRows = kConsumers * kQueryRows, kThreads = (1 + kConsumers) * kWarpgroup, kStages = 2;

template <int kD>
struct Shared {
  QueryTile<kD> query[kConsumers];
  KeyTile<kD> keys[kStages], values[kStages];
  ptx::Barrier query_full, keys_full[kStages], keys_empty[kStages], values_full[kStages], values_empty[kStages];
};

#ifdef XGEMM_LAB_HOPPER
/// By one thread.
template <int kD>
__device__ __forceinline__ void produce(Shared<kD>& shared, const Problem& p, int first, int head, int tiles) {
  for (int i = 0; i < kConsumers; ++i) load<kD>(shared.query[i], p.map_query, shared.query_full, first + i * kQueryRows, head);
  PipelineState<kStages> ring;
  for (int n = 0; n < tiles; ++n, ring.advance()) {
    ptx::barrier_wait(&shared.keys_empty[ring.slot], ring.parity ^ 1);
    load<kD>(shared.keys[ring.slot], p.map_key, shared.keys_full[ring.slot], n * kKeyRows, head);
    ptx::barrier_wait(&shared.values_empty[ring.slot], ring.parity ^ 1);
    load<kD>(shared.values[ring.slot], p.map_value, shared.values_full[ring.slot], n * kKeyRows, head);
  }
}

/// A warp's part of giving a slot back.
__device__ __forceinline__ void release(ptx::Barrier& empty) {
  if (threadIdx.x % 32 == 0) ptx::barrier_arrive(&empty);
}

#endif

/// Consumer::consume() is called by a warpgroup, whose number is 0 or 1 and whose first row is `first`.
template <class Consumer, int kD>
__global__ void __launch_bounds__(kThreads) specialised_kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared<kD>& shared = *reinterpret_cast<Shared<kD>*>(raw);
  const int first = blockIdx.x * kBlockRows, head = blockIdx.y, group = warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroup);
  const int tiles = (keys_of(p, first + kBlockRows - 1) + kKeyRows - 1) / kKeyRows;
  if (threadIdx.x == 0) {
    ptx::barrier_init(&shared.query_full, kConsumers);
    for (int i = 0; i < kStages; ++i) {
      ptx::barrier_init(&shared.keys_full[i], 1);
      ptx::barrier_init(&shared.values_full[i], 1);
      ptx::barrier_init(&shared.keys_empty[i], kConsumers * 4);
      ptx::barrier_init(&shared.values_empty[i], kConsumers * 4);
    }
    ptx::fence_barrier_init();
  }
  __syncthreads();
  if (group == 0) {
    ptx::release_registers<24>();
    if (threadIdx.x == 0) produce<kD>(shared, p, first, head, tiles);
  } else {
    ptx::acquire_registers<240>();
    Consumer::template consume<kD>(shared, group - 1, p, first + (group - 1) * kQueryRows, head, tiles);
  }
#endif
}

}  // namespace xgemm::lab::attention
