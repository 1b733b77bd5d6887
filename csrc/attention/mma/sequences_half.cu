#include "attention/mma/launch.cuh"

template void xgemm::attention::launch_mma_sequences<half>(bool, int, const WithSequences<MmaArguments>&, unsigned, cudaStream_t);
