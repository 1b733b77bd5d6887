// Products of few outputs, each a long sum: heads of one to eight outputs on few rows. A CTA has an output, its threads lie along
// k (sm_80 and later); for a long K a cluster has one (sm_90). One launch, no workspace. Any dtype, strides and batch.
//
// A short launch waits for its instructions, so that there are few: outputs side by side in a thread's registers would share
// loads, but took 6 us where this takes 2 (docs/log/matmul.md).
//
//   Order   a thread adds its k in order; then come the lanes of a warp as a tree, the warps in order, the CTAs in order. It
//           depends on K and on the number of CTAs.
//   Error   fp32 and fp64 add in fp64, in which products of fp32 are exact; half precision adds in fp32, in which its own are.
//
// Floor: a launch and one round trip to memory.
#include <type_traits>

#include "device/launch.h"
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/gemv/plan.h"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

/// Grid: columns of C by `splits` CTAs of a cluster, rows, batches.
template <class T>
__global__ void __launch_bounds__(kOutputsThreads) outputs_kernel(const __grid_constant__ Problem p, unsigned splits) {
  using Sum = std::conditional_t<sizeof(T) == 2, float, double>;
  using Acc = std::conditional_t<sizeof(T) == 8, double, float>;
  constexpr int kAhead = 4;  // k of a thread in flight
  fetch_arguments(p);
  const unsigned split = blockIdx.x % splits, column = blockIdx.x / splits, row = blockIdx.y, batch = blockIdx.z;
  const int thread = static_cast<int>(threadIdx.x);
  std::int64_t at_a = row * p.a.row_stride, at_b = column * p.b.col_stride;
  each_batch_dim(p, batch, [&](int d, std::int64_t at) { at_a += at * p.a.batch_stride[d], at_b += at * p.b.batch_stride[d]; });
  const std::int64_t step = splits * kOutputsThreads;
  const T *const a = static_cast<const T*>(p.a.data) + at_a, *const b = static_cast<const T*>(p.b.data) + at_b;
  __shared__ Sum of_warps[kOutputsThreads / kWarpSize];
  [[maybe_unused]] __shared__ Sum of_splits[kMaxCluster];

  ptx::grid_release();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (splits > 1) ptx::cluster_arrive_relaxed();  // the wait is before a write to another CTA's memory: it must have started
#endif
  ptx::grid_wait();
  Sum sum = 0;
  for (std::int64_t k = split * kOutputsThreads + threadIdx.x; k < p.k; k += kAhead * step) {
    // Out of bounds the last element is loaded again: behind a branch the loads would wait for each other.
    T of_a[kAhead], of_b[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t at = min(k + i * step, p.k - 1);
      of_a[i] = a[at * p.a.col_stride], of_b[i] = b[at * p.b.row_stride];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (k + i * step < p.k) sum = fma(convert<Sum>(of_a[i]), convert<Sum>(of_b[i]), sum);
  }
  sum = warp_reduce(sum, [](Sum x, Sum y) { return plus(x, y); });
  if (thread % kWarpSize == 0) of_warps[thread / kWarpSize] = sum;
  __syncthreads();
  const auto add = [](const Sum* of, int count) {
    Sum total = of[0];
    for (int i = 1; i < count; ++i) total = plus(total, of[i]);
    return total;
  };
  if (thread == 0) sum = add(of_warps, kOutputsThreads / kWarpSize);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (splits > 1) {
    ptx::cluster_wait();
    if (thread == 0) {
      const std::uint32_t to = ptx::remote_address(&of_splits[split], 0);
      if constexpr (sizeof(Sum) == 4)
        ptx::store_remote(to, __float_as_uint(sum));
      else
        ptx::store_remote(to, __int_as_float(__double2loint(sum)), __int_as_float(__double2hiint(sum)));
    }
    ptx::cluster_sync();
    if (split == 0 && thread == 0) sum = add(of_splits, static_cast<int>(splits));
  }
#endif
  if (split > 0 || thread > 0) return;
  static_cast<T*>(p.out)[(static_cast<std::int64_t>(batch) * p.m + row) * p.n + column] =
      make_epilogue<T, Acc>(p, batch)(static_cast<Acc>(sum), row, column);
}

}  // namespace

void launch_outputs(const Problem& p, const GemvPlan& plan, cudaStream_t stream) {
  const auto splits = static_cast<unsigned>(plan.splits);
  const Grid grid{.blocks = {static_cast<unsigned>(p.n) * splits, static_cast<unsigned>(p.m), static_cast<unsigned>(p.batches)},
                  .threads = kOutputsThreads,
                  .cluster = splits,
                  .early = true};
  switch (p.dtype) {
    case DType::f16: return enqueue(outputs_kernel<half>, grid, stream, p, splits);
    case DType::bf16: return enqueue(outputs_kernel<bf16>, grid, stream, p, splits);
    case DType::f64: return enqueue(outputs_kernel<double>, grid, stream, p, splits);
    default: return enqueue(outputs_kernel<float>, grid, stream, p, splits);
  }
}

}  // namespace xgemm::matmul
