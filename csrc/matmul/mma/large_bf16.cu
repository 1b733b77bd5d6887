#include "matmul/mma/large.cuh"

template void xgemm::matmul::launch_large_type<xgemm::bf16, 1>(const LargePlan&, const LargeArguments&, cudaStream_t);
