// Latency hiding in arithmetic by instruction-level parallelism (S4-06 to S4-10, Volkov).
//
// One block an SM, so that threads a block are threads an SM. Each thread runs kChains independent chains of `iterations` steps
// y <- y b + c with b and c known at run time, as the slides' kernel has them. Work: 2 * iterations * kChains operations a
// thread; memory traffic does not count. Little's law: an SM needs latency x 128 multiply-adds in flight, about 4 x 128; what
// threads do not supply, chains must. kRegisters: how many different registers a multiply-add reads: 3 (y, b, c), or 2 (y b + b),
// which asks less of the register file. kUnroll: steps between two tests of the loop's end.
#include "lab/experiments/experiments.h"
#include "lab/kernels.h"

namespace xgemm::lab::experiments {
namespace {

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

struct Variant {
  int chains, unroll, registers;
  void (*kernel)(const float*, const float*, float*, int);
};
template <int kChains, int kUnroll, int kRegisters = 3>
constexpr Variant kVariant{kChains, kUnroll, kRegisters, fma_kernel<kChains, kUnroll, kRegisters>};
constexpr Variant kVariants[] = {kVariant<1, 8>,    kVariant<2, 8>,  kVariant<4, 8>,  kVariant<8, 8>,  kVariant<16, 8>,   //
                                 kVariant<1, 64>,   kVariant<2, 64>, kVariant<4, 64>, kVariant<8, 64>, kVariant<16, 64>,  //
                                 kVariant<1, 64, 2>};

const NameKernel named_1("fma 1 chain", fma_kernel<1, 64, 3>, 1024), named_16("fma 16 chains", fma_kernel<16, 64, 3>, 1024);

}  // namespace

bool fma_chains(const float* in, const float* factors, float* out, int blocks, const FmaShape& s, cudaStream_t stream) {
  for (const Variant& v : kVariants)
    if (v.chains == s.chains && v.unroll == s.unroll && v.registers == s.registers) {
      const auto kernel = v.kernel;
      kernel<<<blocks, s.threads, 0, stream>>>(in, factors, out, s.iterations);
      return true;
    }
  return false;
}

}  // namespace xgemm::lab::experiments
