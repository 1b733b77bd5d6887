// Host side of kernels/wgmma_gemm.cuh: tensor maps, cluster and grid.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>

#include "device/tensor_map.h"
#include "matmul/kernels/wgmma_epilogue.cuh"
#include "matmul/kernels/wgmma_gemm.cuh"

namespace xgemm {

/// An operand as TMA reads it: the contiguous dim, then the other one with stride ld.
struct WgmmaOperand {
  const void* data;
  std::int64_t ld, plane;  ///< strides in elements: of the other dim, and of batches (or of parts)
  int batch_step;          ///< 0: shared by all batches
};

struct WgmmaProblem {
  int m, n, k, batch;
  WgmmaOperand a, b;
};

template <class Element>
inline constexpr DType kTensorMapType = std::is_same_v<Element, half>   ? DType::f16
                                        : std::is_same_v<Element, bf16> ? DType::bf16
                                                                        : DType::f32;

/// Launches on `stream`; false if the driver refuses a tensor map (see tensor_map_possible). M, N, K and batch are at least 1.
template <class Element, class Config, class Epilogue>
bool launch_wgmma(const WgmmaProblem& p, const Epilogue& epilogue, int sm_count, cudaStream_t stream) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  using Boxes = WgmmaBoxes<Element, Config>;
  constexpr DType kType = kTensorMapType<Element>;
  WgmmaArguments<Epilogue> arguments{};
  arguments.m = p.m, arguments.n = p.n, arguments.k = p.k, arguments.batch = p.batch;
  arguments.batch_step_a = p.a.batch_step, arguments.batch_step_b = p.b.batch_step;
  arguments.epilogue = epilogue;
  const auto planes = [&](const WgmmaOperand& o) { return std::int64_t{kConfig.parts} * (o.batch_step ? p.batch : 1); };
  const TensorMapSpec a{.data = p.a.data, .dtype = kType,
                        .sizes = {kConfig.k_major_a ? p.k : p.m, kConfig.k_major_a ? p.m : p.k, planes(p.a)},
                        .strides = {p.a.ld, p.a.plane}, .box = {Boxes::kBoxA[0], Boxes::kBoxA[1]}, .swizzle_bytes = Boxes::kSwizzleA};
  const TensorMapSpec b{.data = p.b.data, .dtype = kType,
                        .sizes = {kConfig.k_major_b ? p.k : p.n, kConfig.k_major_b ? p.n : p.k, planes(p.b)},
                        .strides = {p.b.ld, p.b.plane}, .box = {Boxes::kBoxB[0], Boxes::kBoxB[1]}, .swizzle_bytes = Boxes::kSwizzleB};
  if (!make_tensor_map(arguments.a, a) || !make_tensor_map(arguments.b, b)) return false;

  const auto kernel = wgmma_gemm<Element, Config, Epilogue>;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Boxes::kSharedBytes) != cudaSuccess) return false;
  const long long rows = (p.m + kWgmmaTileM * kConfig.cluster - 1) / (kWgmmaTileM * kConfig.cluster);
  const long long tiles = rows * ((p.n + kConfig.tile_n - 1) / kConfig.tile_n) * p.batch;
  const int clusters = static_cast<int>(std::min<long long>(tiles, sm_count / kConfig.cluster));
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(kConfig.cluster), 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(clusters * kConfig.cluster));
  config.blockDim = dim3(kWgmmaThreads);
  config.dynamicSmemBytes = Boxes::kSharedBytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = kConfig.cluster > 1 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments) == cudaSuccess;
}

}  // namespace xgemm
