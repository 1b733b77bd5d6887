// Online softmax (Milakov & Gimelshein, arXiv 1805.02867): maximum and sum in one pass.
//
// m_j = max(m_{j-1}, x_j); d_j = d_{j-1} exp(m_{j-1} - m_j) + exp(x_j - m_j), as printed: two exponentials an element and no
// branch (a test whether x_j is a new maximum makes the lanes of a warp diverge, which costs more than the exponential). As safe
// as safe softmax with the passes of naive: two reads and one store, 12 bytes an element (the notes print "3 reads 1 store").
// Pairs (m, d) merge in any order, so threads and blocks can share a row; flash attention rests on this. Limit: memory bandwidth
// where a row does not stay in a cache between the passes; else the exponentials. The paper saw up to 1.3x over safe softmax.
#include "lab/softmax/max_sum.cuh"

namespace xgemm::lab::softmax {

const Step named_online({2}, "softmax online", online_kernel<1>, kThreads, launch_rows<online_kernel<1>>);

}  // namespace xgemm::lab::softmax
