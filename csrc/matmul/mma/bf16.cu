#include "matmul/mma/launch.cuh"

template void xgemm::matmul::launch_mma_type<xgemm::bf16, 1>(const MmaPlan&, const MmaArguments&, cudaStream_t);
