#include "matmul/mma/kernel.cuh"

template void xgemm::matmul::launch_mma<half>(const Problem&, const MmaPlan&, void*, float*, cudaStream_t);
