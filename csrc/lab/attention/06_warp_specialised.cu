// Step 06, warp-specialised: a producer that only fetches, two warpgroups of 64 rows that only compute, a ring of two tiles each
// of keys and values between them.
//
// Since step 05: a block owns 128 rows, so that a byte from L2 serves 128 operations; fetching runs up to two tiles ahead and
// no consumer waits for another one. A slot is refilled when all 8 consumer warps have left it. setmaxnreg moves the
// producer's registers to the consumers. 161 KiB a block at d = 128, one block an SM. Limit: nothing keeps the two warpgroups
// apart: both wait for the same keys, multiply at the same time, and then leave the tensor cores idle while both compute
// exponentials.
#include "device/launch.h"
#include "device/pipeline.cuh"
#include "lab/attention/hopper.cuh"
#include "lab/kernels.h"

namespace xgemm::lab::attention {
namespace step_06 {

constexpr int kConsumers = 2, kRows = kConsumers * kQueryRows, kThreads = (1 + kConsumers) * kWarpgroup, kStages = 2;

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

/// By a warpgroup, whose first row is `first`: step 05's loop without its fetches and block-wide barriers.
template <int kD>
__device__ __forceinline__ void consume(Shared<kD>& shared, const QueryTile<kD>& query, const Problem& p, int first, int head,
                                        int tiles) {
  Scores scores;
  Weights weights;
  Out<kD> out = {};
  OnlineSoftmax softmax;
  PipelineState<kStages> ring;
  ptx::barrier_wait(&shared.query_full, 0);
  for (int n = 0; n < tiles; ++n, ring.advance()) {
    ptx::barrier_wait(&shared.keys_full[ring.slot], ring.parity);
    multiply_keys<kD>(scores, query, shared.keys[ring.slot]);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(scores);
    release(shared.keys_empty[ring.slot]);

    soften<kD>(weights, scores, out, softmax, p, first, n * kKeyRows);

    ptx::barrier_wait(&shared.values_full[ring.slot], ring.parity);
    multiply_values<kD>(out, weights, shared.values[ring.slot]);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(out);
    release(shared.values_empty[ring.slot]);
  }
  finish<kD>(out, softmax, p, head, first);
}
#endif

template <int kD>
__global__ void __launch_bounds__(kThreads) kernel([[maybe_unused]] const __grid_constant__ Problem p) {
#ifdef XGEMM_LAB_HOPPER
  extern __shared__ __align__(1024) unsigned char raw[];
  Shared<kD>& shared = *reinterpret_cast<Shared<kD>*>(raw);
  const int first = blockIdx.x * kRows, head = blockIdx.y, group = warp_uniform(static_cast<int>(threadIdx.x) / kWarpgroup);
  const int tiles = (keys_of(p, first + kRows - 1) + kKeyRows - 1) / kKeyRows;
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
    consume<kD>(shared, shared.query[group - 1], p, first + (group - 1) * kQueryRows, head, tiles);
  }
#endif
}

template <int kD>
void launch(const Problem& p, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(Shared<kD>));
  allow_shared<kernel<kD>, kBytes>();
  kernel<kD><<<dim3((p.s + kRows - 1) / kRows, p.heads), kThreads, kBytes, stream>>>(p);
}

const NameKernel named_64("attention 06_warp_specialised 64", kernel<64>, kThreads, sizeof(Shared<64>)),
    named_128("attention 06_warp_specialised 128", kernel<128>, kThreads, sizeof(Shared<128>));

}  // namespace step_06

void warp_specialised(const Problem& p, cudaStream_t stream) {
  (p.d == 64 ? step_06::launch<64> : step_06::launch<128>)(p, stream);
}

}  // namespace xgemm::lab::attention
