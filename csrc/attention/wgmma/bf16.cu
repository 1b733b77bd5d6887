#include "attention/wgmma/launch.cuh"

template void xgemm::attention::launch_wgmma<xgemm::bf16>(int, Masking, const TileArguments&, int, cudaStream_t);
