#include "attention/mma/launch.cuh"

template void xgemm::attention::launch_mma<xgemm::bf16>(bool, int, bool, const MmaArguments&, unsigned, cudaStream_t);
