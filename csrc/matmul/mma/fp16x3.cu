#include "matmul/mma/launch.cuh"

namespace xgemm::matmul {
template void launch_mma_type<half, 2>(const MmaPlan&, const MmaArguments&, cudaStream_t);
}
