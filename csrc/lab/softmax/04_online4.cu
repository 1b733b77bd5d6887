// Online softmax, four elements a step: the recurrence of 03 with the maximum of four elements and one rescaling for
// them.
//
// Five exponentials for four elements instead of eight, and four loads in flight. Two reads and one store, 12 bytes an element.
// Limit: memory bandwidth.
#include "lab/kernels.h"
#include "lab/softmax/max_sum.cuh"

namespace xgemm::lab::softmax {
namespace step_04 {

__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ Problem p) {
  online_row<4>(p.x + blockIdx.x * p.cols, p.y + blockIdx.x * p.cols, p.cols);
}

const NameKernel named("softmax online4", kernel, kThreads);

}  // namespace step_04

void online4(const Problem& p, cudaStream_t stream) {
  step_04::kernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p);
}

}  // namespace xgemm::lab::softmax
