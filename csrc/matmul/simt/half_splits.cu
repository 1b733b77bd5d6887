#include "matmul/simt/launch.cuh"

template void xgemm::matmul::launch_sum_splits<half>(const Problem&, std::int64_t, float*, cudaStream_t);
template void xgemm::matmul::launch_sum_splits<xgemm::bf16>(const Problem&, std::int64_t, float*, cudaStream_t);
