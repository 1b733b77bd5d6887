#include "matmul/simt/launch.cuh"

namespace xgemm::matmul {

template void launch_simt<float>(const Problem&, const SimtPlan&, void*, cudaStream_t, const FailedPairs&);

}  // namespace xgemm::matmul
