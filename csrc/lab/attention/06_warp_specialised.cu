// Step 06, warp-specialised: a producer that only fetches, two warpgroups of 64 rows that only compute, a ring of two tiles each
// of keys and values between them.
//
// Since step 05: a block owns 128 rows, so that a byte from L2 serves 128 operations; fetching runs up to two tiles ahead and
// no consumer waits for another one. A slot is refilled when all 8 consumer warps have left it. setmaxnreg moves the
// producer's registers to the consumers. 161 KiB a block at d = 128, one block an SM. Limit: nothing keeps the two warpgroups
// apart: both wait for the same keys, multiply at the same time, and then leave the tensor cores idle while both compute
// exponentials.
#include "lab/attention/specialised.cuh"

namespace xgemm::lab::attention::step_06 {

struct Together {
#ifdef XGEMM_LAB_HOPPER
  /// Step 05's loop without its fetches and block-wide barriers.
  template <int kD>
  __device__ __forceinline__ static void consume(Shared<kD>& shared, int group, const Problem& p, int first, int head,
                                                 int tiles) {
    const QueryTile<kD>& query = shared.query[group];
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
};

const Step named_64 = step<64, specialised_kernel<Together, 64>, kBlockRows, kThreads, sizeof(Shared<64>)>(
               6, "attention 06_warp_specialised 64"),
           named_128 = step<128, specialised_kernel<Together, 128>, kBlockRows, kThreads, sizeof(Shared<128>)>(
               6, "attention 06_warp_specialised 128");

}  // namespace xgemm::lab::attention::step_06
