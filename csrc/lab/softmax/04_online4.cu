// Online softmax, four elements a step: the recurrence of 03 with the maximum of four elements and one rescaling for
// them.
//
// Five exponentials for four elements instead of eight, and four loads in flight. Two reads and one store, 12 bytes an element.
// Limit: memory bandwidth.
#include "lab/softmax/max_sum.cuh"

namespace xgemm::lab::softmax {

const Step named_online4({3}, "softmax online4", online_kernel<4>, kThreads, launch_rows<online_kernel<4>>);

}  // namespace xgemm::lab::softmax
