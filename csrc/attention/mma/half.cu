#include "attention/mma/launch.cuh"

template void xgemm::attention::launch_mma<half>(bool, int, bool, const MmaArguments&, unsigned, cudaStream_t);
