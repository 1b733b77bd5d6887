// Step 07, ping-pong: the two warpgroups take turns at the tensor cores, so that one multiplies while the other computes
// exponentials (FlashAttention-3).
//
// Since step 06: the products of a turn are O += P V of one tile and Q K^T of the next, issued together; then the turn passes to
// the other warpgroup, and the softmax of the new scores runs while its products do. Two named barriers hand the turn over: a
// warpgroup waits at its own and arrives at the other's. The producer, the ring and the arithmetic are step 06's. Limit: a
// warpgroup still waits for its own products before its softmax; a block ends, stores and begins with idle tensor cores, and a
// causal mask gives blocks unequal work. Step 08, the library's kernel, is persistent, walks over the longest tiles first and
// stores by TMA.
#include "lab/attention/specialised.cuh"

namespace xgemm::lab::attention::step_07 {

#ifdef XGEMM_LAB_HOPPER
/// The turn of the warpgroup `mine`, 0 or 1; warpgroup 0 has the first.
struct Turn {
  int mine;
  static constexpr int kBarrier = 1, kThreadsOfBoth = kConsumers * kWarpgroup;  // named barriers 1 and 2; 0 is __syncthreads
  __device__ __forceinline__ void wait() const { ptx::named_barrier_sync(kBarrier + mine, kThreadsOfBoth); }
  __device__ __forceinline__ void pass() const { ptx::named_barrier_arrive(kBarrier + (mine ^ 1), kThreadsOfBoth); }
};
#endif

struct InTurns {
#ifdef XGEMM_LAB_HOPPER
  template <int kD>
  __device__ __forceinline__ static void consume(Shared<kD>& shared, int group, const Problem& p, int first, int head,
                                                 int tiles) {
    const Turn turn{group};
    const QueryTile<kD>& query = shared.query[group];
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
};

const Step named_64 = step<64, specialised_kernel<InTurns, 64>, kBlockRows, kThreads, sizeof(Shared<64>)>(
               7, "attention 07_ping_pong 64"),
           named_128 = step<128, specialised_kernel<InTurns, 128>, kBlockRows, kThreads, sizeof(Shared<128>)>(
               7, "attention 07_ping_pong 128");

}  // namespace xgemm::lab::attention::step_07
