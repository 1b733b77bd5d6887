#include "attention/simt/tile.cuh"

template void xgemm::attention::launch_simt_tile<true>(const SimtPlan&, const SimtArguments&, cudaStream_t);
