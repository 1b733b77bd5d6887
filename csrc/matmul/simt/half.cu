#include "matmul/simt/launch.cuh"

namespace xgemm::matmul {

template void launch_simt<half>(const Problem&, const SimtPlan&, void*, cudaStream_t, const FailedPairs&);
template void launch_gemv<half>(const Problem&, const GemvPlan&, void*, cudaStream_t);

}  // namespace xgemm::matmul
