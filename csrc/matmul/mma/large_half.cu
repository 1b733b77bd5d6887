#include "matmul/mma/large.cuh"

template void xgemm::matmul::launch_large_type<half, 1>(const LargePlan&, const LargeArguments&, cudaStream_t);
