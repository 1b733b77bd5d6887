// Latency hiding in arithmetic by instruction-level parallelism (after Volkov).
//
// One block an SM, so that threads a block are threads an SM. Each thread runs kChains independent chains of `iterations` steps
// y <- y b + c with b and c known at run time, as the slides' kernel has them. Work: 2 * iterations * kChains operations a
// thread; memory traffic does not count. Little's law: an SM needs latency x 128 multiply-adds in flight, about 4 x 128; what
// threads do not supply, chains must. kRegisters: how many different registers a multiply-add reads: 3 (y, b, c), or 2 (y b + b),
// which asks less of the register file. kUnroll: steps between two tests of the loop's end.
#include "lab/experiments/experiments.h"

namespace xgemm::lab::experiments {

template <int kChains, int kUnroll, int kRegisters>
__global__ void fma_kernel(const float* in, const float* factors, float* out, int iterations) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  // From memory: of a kernel's parameters the compiler would take one straight from the constant bank.
  const float b = factors[0], c = kRegisters == 3 ? factors[1] : b;
  float y[kChains];
#pragma unroll
  for (int k = 0; k < kChains; ++k) y[k] = in[t] + k;
#pragma unroll kUnroll
  for (int i = 0; i < iterations; ++i)
#pragma unroll
    for (int k = 0; k < kChains; ++k) y[k] = fmaf(y[k], b, c);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < kChains; ++k) sum += y[k];
  out[t] = sum;
}

const NameKernel named_chains[] = {{"fma 1x8", fma_kernel<1, 8, 3>, 1024},
                                   {"fma 2x8", fma_kernel<2, 8, 3>, 1024},
                                   {"fma 4x8", fma_kernel<4, 8, 3>, 1024},
                                   {"fma 8x8", fma_kernel<8, 8, 3>, 1024},
                                   {"fma 16x8", fma_kernel<16, 8, 3>, 1024},
                                   {"fma 1x64", fma_kernel<1, 64, 3>, 1024},
                                   {"fma 2x64", fma_kernel<2, 64, 3>, 1024},
                                   {"fma 4x64", fma_kernel<4, 64, 3>, 1024},
                                   {"fma 8x64", fma_kernel<8, 64, 3>, 1024},
                                   {"fma 16x64", fma_kernel<16, 64, 3>, 1024},
                                   {"fma 1x64, 2 registers", fma_kernel<1, 64, 2>, 1024}};

}  // namespace xgemm::lab::experiments
