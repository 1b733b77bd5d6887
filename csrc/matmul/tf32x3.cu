#include "matmul/kernels/tf32x3.cuh"

namespace xgemm::matmul {
namespace {

template <Kernel kKernel, bool kVector, bool kAlongKA, bool kAlongKB>
void launch_as(const SimtArguments& args, cudaStream_t stream) {
  using Shape = Tf32x3<kKernel, kVector, kAlongKA, kAlongKB>;
  const Problem& p = args.problem;
  const std::int64_t tiles = (p.m + Shape::kTile.bm - 1) / Shape::kTile.bm * ((p.n + Shape::kTile.bn - 1) / Shape::kTile.bn);
  const auto kernel = tf32x3_gemm<kKernel, kVector, kAlongKA, kAlongKB>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes);
  kernel<<<static_cast<unsigned>(tiles * p.batches * args.splits), tf32x3::kThreads, Shape::kSharedBytes, stream>>>(args);
}

template <Kernel kKernel, bool kVector>
void launch_layout(const SimtArguments& args, cudaStream_t stream) {
  if (args.a.along_k)
    args.b.along_k ? launch_as<kKernel, kVector, true, true>(args, stream) : launch_as<kKernel, kVector, true, false>(args, stream);
  else
    args.b.along_k ? launch_as<kKernel, kVector, false, true>(args, stream) : launch_as<kKernel, kVector, false, false>(args, stream);
}

}  // namespace

void launch_tf32x3(Kernel kernel, bool vector, const SimtArguments& args, cudaStream_t stream) {
  if (kernel == Kernel::tf32x3_64x64)
    vector ? launch_layout<Kernel::tf32x3_64x64, true>(args, stream) : launch_layout<Kernel::tf32x3_64x64, false>(args, stream);
  else
    vector ? launch_layout<Kernel::tf32x3_16x128, true>(args, stream) : launch_layout<Kernel::tf32x3_16x128, false>(args, stream);
}

}  // namespace xgemm::matmul
