#include "matmul/simt/launch.cuh"

namespace xgemm::matmul {

template void launch_sum_splits<float>(const Problem&, std::int64_t, float*, cudaStream_t);
template void launch_simt<float>(const Problem&, const SimtPlan&, void*, cudaStream_t, const FailedPairs&);
template void launch_gemv<float>(const Problem&, const GemvPlan&, void*, cudaStream_t);

}  // namespace xgemm::matmul
