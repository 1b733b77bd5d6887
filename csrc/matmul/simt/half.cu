#include "matmul/simt/launch.cuh"

namespace xgemm::matmul {

template void launch_sum_splits<half>(const Problem&, std::int64_t, float*, cudaStream_t);
template void launch_gemv<half>(const Problem&, const GemvPlan&, void*, cudaStream_t);

}  // namespace xgemm::matmul
