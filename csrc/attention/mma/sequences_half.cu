// fp16: every tile, for sequences of different lengths.
#include "attention/mma/launch.cuh"

namespace xgemm::attention {

void launch_mma_sequences_half(bool few, int tile, const WithSequences<MmaArguments>& arguments, unsigned ctas,
                               cudaStream_t stream) {
  (few ? launch_mma_tile<half, Masking::sequences> : launch_many_rows_tile<half, Masking::sequences>)(tile, arguments, ctas,
                                                                                                      stream);
}

}  // namespace xgemm::attention
