#include "matmul/simt/launch.cuh"

namespace xgemm::matmul {

template void launch_sum_splits<half>(const Problem&, std::int64_t, float*, cudaStream_t);
template void launch_sum_splits<bf16>(const Problem&, std::int64_t, float*, cudaStream_t);

}  // namespace xgemm::matmul
