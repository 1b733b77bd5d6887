#include "matmul/mma/kernel.cuh"

template void xgemm::matmul::launch_mma<xgemm::bf16>(const Problem&, const MmaPlan&, void*, float*, cudaStream_t);
