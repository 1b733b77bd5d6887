// bf16: every tile, with and without a mask.
#include "attention/mma/launch.cuh"

namespace xgemm::attention {

void launch_mma_bf16(int tile, bool masked, const MmaArguments& arguments, unsigned ctas, cudaStream_t stream) {
  (masked ? launch_mma_tile<bf16, Masking::additive> : launch_mma_tile<bf16, Masking::edges>)(tile, arguments, ctas, stream);
}

void launch_many_rows_bf16(int tile, bool masked, const MmaArguments& arguments, unsigned ctas, cudaStream_t stream) {
  (masked ? launch_many_rows_tile<bf16, Masking::additive> : launch_many_rows_tile<bf16, Masking::edges>)(tile, arguments, ctas,
                                                                                                          stream);
}

}  // namespace xgemm::attention
