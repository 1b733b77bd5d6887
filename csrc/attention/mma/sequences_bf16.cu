// bf16: every tile, for sequences of different lengths.
#include "attention/mma/launch.cuh"

namespace xgemm::attention {

void launch_mma_sequences_bf16(bool few, int tile, const WithSequences<MmaArguments>& arguments, unsigned ctas,
                               cudaStream_t stream) {
  (few ? launch_mma_tile<bf16, Masking::sequences> : launch_many_rows_tile<bf16, Masking::sequences>)(tile, arguments, ctas,
                                                                                                      stream);
}

}  // namespace xgemm::attention
