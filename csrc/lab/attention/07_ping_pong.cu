// Step 07, ping-pong: the two warpgroups take turns at the tensor cores, so that one multiplies while the other computes
// exponentials (FlashAttention-3).
//
// Since step 06: the products of a turn are O += P V of one tile and Q K^T of the next, issued together; then the turn passes to
// the other warpgroup, and the softmax of the new scores runs while its products do. Two named barriers hand the turn over: a
// warpgroup waits at its own and arrives at the other's. The producer, the ring and the arithmetic are step 06's. Limit: a
// warpgroup still waits for its own products before its softmax; a block ends, stores and begins with idle tensor cores, and a
// causal mask gives blocks unequal work. Step 08, the library's kernel, is persistent, walks over the longest tiles first and
// stores by TMA.
#include "device/launch.h"
#include "device/pipeline.cuh"
#include "lab/attention/hopper.cuh"
#include "lab/kernels.h"

namespace xgemm::lab::attention {
namespace step_07 {

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

/// The turn of the warpgroup `mine`, 0 or 1; warpgroup 0 has the first.
struct Turn {
  int mine;
  static constexpr int kBarrier = 1, kThreadsOfBoth = kConsumers * kWarpgroup;  // named barriers 1 and 2; 0 is __syncthreads
  __device__ __forceinline__ void wait() const { ptx::named_barrier_sync(kBarrier + mine, kThreadsOfBoth); }
  __device__ __forceinline__ void pass() const { ptx::named_barrier_arrive(kBarrier + (mine ^ 1), kThreadsOfBoth); }
};

/// By a warpgroup, whose first row is `first`.
template <int kD>
__device__ __forceinline__ void consume(Shared<kD>& shared, const Turn& turn, const Problem& p, int first, int head, int tiles) {
  const QueryTile<kD>& query = shared.query[turn.mine];
  Scores scores;
  Weights weights;
  Out<kD> out = {};
  OnlineSoftmax softmax;
  PipelineState<kStages> keys, values;
  if (turn.mine == 1) turn.pass();
  ptx::barrier_wait(&shared.query_full, 0);

  turn.wait();
  ptx::barrier_wait(&shared.keys_full[0], 0);
  multiply_keys<kD>(scores, query, shared.keys[0]);
  turn.pass();
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(scores);
  release(shared.keys_empty[0]);
  keys.advance();
  soften<kD>(weights, scores, out, softmax, p, first, 0);

  for (int n = 1; n < tiles; ++n, keys.advance(), values.advance()) {
    turn.wait();
    ptx::barrier_wait(&shared.values_full[values.slot], values.parity);
    multiply_values<kD>(out, weights, shared.values[values.slot]);
    ptx::barrier_wait(&shared.keys_full[keys.slot], keys.parity);
    multiply_keys<kD>(scores, query, shared.keys[keys.slot]);
    turn.pass();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(out);
    ptx::wgmma_pin(scores);
    release(shared.values_empty[values.slot]);
    release(shared.keys_empty[keys.slot]);
    soften<kD>(weights, scores, out, softmax, p, first, n * kKeyRows);
  }

  turn.wait();
  ptx::barrier_wait(&shared.values_full[values.slot], values.parity);
  multiply_values<kD>(out, weights, shared.values[values.slot]);
  turn.pass();
  ptx::wgmma_wait<0>();
  ptx::wgmma_pin(out);
  if (turn.mine == 0) turn.wait();  // takes the last arrival, which would be left behind
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
    consume<kD>(shared, Turn{group - 1}, p, first + (group - 1) * kQueryRows, head, tiles);
  }
#endif
}

template <int kD>
void launch(const Problem& p, cudaStream_t stream) {
  constexpr int kBytes = static_cast<int>(sizeof(Shared<kD>));
  allow_shared<kernel<kD>, kBytes>();
  kernel<kD><<<dim3((p.s + kRows - 1) / kRows, p.heads), kThreads, kBytes, stream>>>(p);
}

const NameKernel named_64("attention 07_ping_pong 64", kernel<64>, kThreads, sizeof(Shared<64>)),
    named_128("attention 07_ping_pong 128", kernel<128>, kThreads, sizeof(Shared<128>));

}  // namespace step_07

void ping_pong(const Problem& p, cudaStream_t stream) { (p.d == 64 ? step_07::launch<64> : step_07::launch<128>)(p, stream); }

}  // namespace xgemm::lab::attention
