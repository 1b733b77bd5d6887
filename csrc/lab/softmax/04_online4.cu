// Online softmax, four elements a step: the recurrence of 03 with the maximum of four elements and one rescaling for
// them.
//
// Five exponentials for four elements instead of eight, and four loads in flight. Two reads and one store, 12 bytes an element.
// Limit: memory bandwidth.
#include "lab/kernels.h"
#include "lab/softmax/max_sum.cuh"

namespace xgemm::lab::softmax {

__global__ void __launch_bounds__(kThreads) online4_kernel(const __grid_constant__ Problem p) {
  online_row<4>(p.x + blockIdx.x * p.cols, p.y + blockIdx.x * p.cols, p.cols);
}

const NameKernel named_online4("softmax online4", online4_kernel, kThreads);

void online4(const Problem& p, cudaStream_t stream) { online4_kernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p); }

}  // namespace xgemm::lab::softmax
