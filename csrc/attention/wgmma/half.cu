#include "attention/wgmma/launch.cuh"

template void xgemm::attention::launch_wgmma<half>(int, Masking, const TileArguments&, int, cudaStream_t);
