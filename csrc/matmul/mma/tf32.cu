#include "matmul/mma/kernel.cuh"

template void xgemm::matmul::launch_mma<float>(const Problem&, const MmaPlan&, void*, float*, cudaStream_t);
