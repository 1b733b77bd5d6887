#include "attention/wgmma/launch.cuh"

template void xgemm::attention::launch_wgmma_sequences<xgemm::bf16>(int, const WithSequences<TileArguments>&, int, cudaStream_t);
