// v0, interleaved addressing with a modulo.
//
// Idea: a tree in shared memory whose step doubles; the threads whose number is a multiple of 2 s add the element s further on.
// Limit: divergence. After the first step only every second lane works, then every fourth, yet every warp of the block runs every
// step until fewer than one lane a warp is left; and the modulo is slow. Document: 8.7 GB/s on an M2090.
#include "lab/reduction/pass.cuh"

namespace xgemm::lab::reduction {

template <class T>
__global__ void interleaved_modulo_kernel(const T* in, T* partials, std::int64_t n) {
  __shared__ T local[kThreads];
  const unsigned tid = threadIdx.x;
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + tid;
  local[tid] = i < n ? in[i] : T{};  // the document's kernels read past a ragged end
  __syncthreads();

  for (unsigned s = 1; s < blockDim.x; s *= 2) {
    if (tid % (2 * s) == 0) local[tid] += local[tid + s];
    __syncthreads();
  }
  if (tid == 0) partials[blockIdx.x] = local[0];
}

const Version v0 =
    version<interleaved_modulo_kernel<float>, interleaved_modulo_kernel<Int>>({0}, "reduction v0_interleaved_modulo");

}  // namespace xgemm::lab::reduction
