// Development only: variants of the wgmma kernels by number, for measuring side by side.
#pragma once
#include <cuda_runtime.h>

#include "matmul/kernels/wgmma_launch.cuh"
#include "matmul/kernels/line_scale.cuh"

namespace xgemm::dev {

template <class Out>
using Plain = StoreEpilogue<Out, NoTransform>;
using Scaled = StoreEpilogue<float, Rescale<NoTransform>>;

// Each returns 1 done, 0 launch refused, -1 no such variant for this layout.
int gemm_bf16(int variant, bool ka, bool kb, const WgmmaProblem& p, const Plain<bf16>& e, int sms, cudaStream_t s);
int gemm_f16(int variant, bool ka, bool kb, const WgmmaProblem& p, const Plain<half>& e, int sms, cudaStream_t s);
int gemm_tf32(int variant, bool ka, bool kb, const WgmmaProblem& p, const Plain<float>& e, int sms, cudaStream_t s);
int gemm_fp16x3(int variant, bool ka, bool kb, const WgmmaProblem& p, const Scaled& e, int sms, cudaStream_t s);
int gemm_fp16x3_wide(int variant, bool ka, bool kb, const WgmmaProblem& p, const Scaled& e, int sms, cudaStream_t s);

}  // namespace xgemm::dev
