// Online softmax (Milakov & Gimelshein, arXiv 1805.02867): maximum and sum in one pass.
//
// m_j = max(m_{j-1}, x_j); d_j = d_{j-1} exp(m_{j-1} - m_j) + exp(x_j - m_j), as printed: two exponentials an element and no
// branch (a test whether x_j is a new maximum makes the lanes of a warp diverge, which costs more than the exponential). As safe
// as safe softmax with the passes of naive: two reads and one store, 12 bytes an element (the notes print "3 reads 1 store").
// Pairs (m, d) merge in any order, so threads and blocks can share a row; flash attention rests on this. Limit: memory bandwidth
// where a row does not stay in a cache between the passes; else the exponentials. The paper saw up to 1.3x over safe softmax.
#include "lab/kernels.h"
#include "lab/softmax/max_sum.cuh"

namespace xgemm::lab::softmax {

__global__ void __launch_bounds__(kThreads) online_kernel(const __grid_constant__ Problem p) {
  online_row<1>(p.x + blockIdx.x * p.cols, p.y + blockIdx.x * p.cols, p.cols);
}

const NameKernel named_online("softmax online", online_kernel, kThreads);

void online(const Problem& p, cudaStream_t stream) { online_kernel<<<static_cast<unsigned>(p.rows), kThreads, 0, stream>>>(p); }

}  // namespace xgemm::lab::softmax
