#include "matmul/simt/launch.cuh"

template void xgemm::matmul::launch_sum_splits<float>(const Problem&, std::int64_t, float*, cudaStream_t);
template void xgemm::matmul::launch_simt<float>(const Problem&, const SimtPlan&, void*, cudaStream_t, const FailedPairs&);
template void xgemm::matmul::launch_gemv<float>(const Problem&, const GemvPlan&, void*, cudaStream_t);
