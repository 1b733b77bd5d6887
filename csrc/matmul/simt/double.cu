#include "matmul/simt/launch.cuh"

namespace xgemm::matmul {

template void launch_simt<double>(const Problem&, const SimtPlan&, void*, cudaStream_t, const FailedPairs&);
template void launch_gemv<double>(const Problem&, const GemvPlan&, void*, cudaStream_t);

}  // namespace xgemm::matmul
