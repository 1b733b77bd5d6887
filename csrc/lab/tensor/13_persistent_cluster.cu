// Step 13, persistent with clusters: as many blocks as SMs, each walking over tiles; two blocks of a cluster share the tile of B.
//
// Idea (the kernel is in persistent.cuh): (a) the producer runs ahead into the next tile while the consumers still store this
// one, so fetching never stops; (b) the two blocks of a cluster own tiles one above the other: each fetches its own A and half of
// B, and multicasts that half to both, which saves a third of the reads of L2; (c) tiles are walked in groups of rows, so that
// blocks at work at the same time share operands in L2. A slot is free when the consumers of both blocks have left it, since both
// producers write to it. Limit: storing from registers in pieces of 16 bytes; the sums of a tile are not overlapped with the next
// one's multiplications.
#include "lab/tensor/persistent.cuh"

namespace xgemm::lab::tensor::step_13 {

struct FromRegisters {
#ifdef XGEMM_LAB_HOPPER
  __device__ __forceinline__ void store(const Problem& p, int, int row, int col, const float (&sum)[128]) {
    tensor::store(p, row, col, sum);
  }
  __device__ __forceinline__ void finish() {}
#endif
};

const Step named({13}, "tensor 13_persistent_cluster", persistent_kernel<FromRegisters>, kRingThreads,
                 launch_persistent<FromRegisters>, sizeof(PersistentShared<FromRegisters>));

}  // namespace xgemm::lab::tensor::step_13
