// bf16x3: fp32 product on Hopper's tensor cores (sm_90a) in one launch, out = epilogue(A B) as epilogue/apply.cuh says. Operands
// are split into three bf16 parts on the way to the tensor cores: no pass over them, no scaling, no copy in memory.
//
//   Operands  fp32, any strides. TMA loads B where base and strides are multiples of 16 bytes. Sizes < 2^31.
//   Parts     x = hi + mid + lo (fragments.cuh). Six products; what is dropped is under 2^-24 of |A||B|. Inf and NaN as in fp32.
//   Roles     Two warpgroups load B and split A (producer.cuh); two split B in registers and multiply (consumer.cuh). The
//             fallback computes what fp16 parts cannot represent (fallback.cuh).
//   Order     of additions: scheduler.cuh. It depends on M, and is the same in every run.
//
// Floors: 6 products of 2 M N K flop at 4096 per cycle and SM; bytes of A, B and C once. Design: docs/matmul.md.
#include "device/integer.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "matmul/bf16x3/consumer.cuh"
#include "matmul/bf16x3/producer.cuh"
#include "matmul/launch.h"
#include "matmul/operand_map.h"

namespace xgemm::matmul {

namespace bf16x3 {

template <Bf16x3Config kConfig>
__device__ __forceinline__ void run(const Bf16x3Arguments& g) {
  const bool tma = g.tma || false;  // "|| false", here and in produce(): else ptxas spills two registers of bf16x3_64x128
  extern __shared__ unsigned char shared_memory[];
  const Shared shared{shared_memory};
  if (threadIdx.x == 0) {
    shared.pipeline_b.init(tma ? 1 : kProducers, tma ? kConsumerWarps : kConsumerWarps * 32);
    shared.pipeline_a.init(kProducerWarps, kConsumerWarps);
    ptx::fence_barrier_init();
    if (tma) ptx::prefetch_tensor_map(&g.b);
  }
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
  if constexpr (kConfig.fallback)
    if (!list_tiles(g, shared.fallback)) return;
  if (warp_of_role() < kProducerWarps) {
    ptx::release_registers<kProducerRegisters>();
    produce<kConfig>(g, shared);
  } else {
    ptx::acquire_registers<kConsumerRegisters>();
    Consumer<kConfig>(g, shared).run();
  }
}

}  // namespace bf16x3

/// The product; or, of a fallback, the elements that a product in fp16 parts leaves (fallback.cuh).
template <bool kKMajorB, bool kFallback, bool kShort>
__global__ void __launch_bounds__(32 * bf16x3::kWarps, 1) bf16x3_gemm(const __grid_constant__ Bf16x3Arguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  bf16x3::run<Bf16x3Config{.k_major_b = kKMajorB, .fallback = kFallback, .short_k = kShort}>(g);
#endif
}

namespace {

template <bool kFallback, bool kShort>
bool launch(const Bf16x3Plan& plan, const Bf16x3Arguments& g, cudaStream_t stream) {
  constexpr int kBytes = bf16x3::Shared::kBytes;
  const Grid grid = early_grid(plan.ctas, 32 * bf16x3::kWarps);
  return plan.b.k_major ? enqueue_with_shared<bf16x3_gemm<true, kFallback, kShort>, kBytes>(grid, stream, g)
                        : enqueue_with_shared<bf16x3_gemm<false, kFallback, kShort>, kBytes>(grid, stream, g);
}

/// Fills the arguments of all launches; false: the driver rejected the tensor map.
bool describe(Bf16x3Arguments& g, const Problem& p, const Bf16x3Plan& plan) {
  const TensorOperand& b = plan.b;
  g.tma = plan.b_tma();
  g.a_along_k = a_along_k(p) || p.a.row_stride != 1;
  g.a_vectors = plan.a_vectors;
  g.plain = has_plain_epilogue(p) && !p.bias.data;
  g.batch_step_b = b.batch_step;
  g.rows = static_cast<unsigned>(ceil_div(p.m, bf16x3::kRows)), g.columns = static_cast<unsigned>(ceil_div(p.n, kBf16x3Columns));
  g.blocks = static_cast<unsigned>(plan.blocks), g.granule = static_cast<unsigned>(plan.granule),
  g.units = static_cast<unsigned>(plan.units);
  g.one_row = g.rows == 1 && p.batches == 1;
  g.all_units = static_cast<unsigned>(plan.tiles * plan.units);
  g.problem = p;
  const int box = b.k_major ? kBf16x3Columns : kBf16x3Block;
  return !g.tma || make_operand_map(g.b, p, p.b, b, nullptr, DType::f32, 32, box);
}

}  // namespace

bool launch_bf16x3(const Problem& p, const Bf16x3Plan& plan, void* counters, float* partials, cudaStream_t stream) {
  Bf16x3Arguments g{};
  if (!describe(g, p, plan)) return false;
  g.meetings = static_cast<Meeting*>(counters), g.partials = partials;
  return plan.blocks <= kBf16x3Short ? launch<false, true>(plan, g, stream) : launch<false, false>(plan, g, stream);
}

bool launch_bf16x3_fallback(const Problem& p, const Bf16x3Plan& plan, const FailedPairs& only, const FailedProduct& failed,
                            const FailedLines* prepared, unsigned* list, cudaStream_t stream) {
  Bf16x3Arguments g{};
  if (!describe(g, p, plan)) return false;
  g.fallback = only, g.failed = failed, g.prepared = prepared, g.list = list;
  return launch<true, false>(plan, g, stream);
}

}  // namespace xgemm::matmul
