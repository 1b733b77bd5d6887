#include "matmul/simt/launch.cuh"

template void xgemm::matmul::launch_simt<double>(const Problem&, const SimtPlan&, void*, cudaStream_t, const FailedPairs&);
template void xgemm::matmul::launch_gemv<double>(const Problem&, const GemvPlan&, void*, cudaStream_t);
