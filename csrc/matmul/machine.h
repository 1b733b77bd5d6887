// What the plans' models know of a GPU: its number of multiprocessors, and one table of measured figures.
#pragma once
#include <algorithm>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// The figures are an H200's (132 multiprocessors; docs/log/matmul.md); other GPUs are planned with them, too: for the choice
/// only ratios matter. What a tile or a kernel costs stands in its family's table.
struct Machine {
  int sm_count;
  double hertz_wgmma = 1.65e9;
  double hertz_tensor = 1.7e9;
  double hertz_cuda_cores = 1.75e9;
  double read_bytes = 4.0e12;
  /// Clusters that run at once: a cluster lies in one GPC, and GPCs differ in how many multiprocessors they have (measured: 16
  /// clusters of 8 and 32 of 4 take two waves on 132).
  constexpr std::int64_t clusters_at_once(std::int64_t cluster) const {
    return std::max<std::int64_t>(1, sm_count / cluster - (cluster == 1 ? 0 : cluster == 2 ? 1 : 2));
  }
};

constexpr Machine machine_of(const DeviceProperties& gpu) { return {.sm_count = gpu.sm_count}; }

/// What the fp32 kernels of one launch ask for (gemv/sweep.cuh, sliced/kernel.cuh): clusters, 227 KiB of shared memory and fp64
/// on tensor cores at fp32's rate; that the bits may depend on M; that k and strides fit 32 bits.
inline bool serves_one_launch_fp32(const Problem& p, const DeviceProperties& gpu) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 4096;
  const auto fits = [](std::int64_t size) { return size >= 1 && size < kLimit; };
  const auto steps = [](const Operand& x) {
    return x.row_stride >= 0 && x.row_stride < kLimit / 4 && x.col_stride >= 0 && x.col_stride < kLimit / 4;
  };
  return gpu.major == 9 && p.dtype == DType::f32 && p.precision != Precision::ieee && !p.batch_invariant && !p.gated &&
         !p.prepared_b && fits(p.m) && fits(p.n) && fits(p.k) && steps(p.a) && steps(p.b);
}

}  // namespace xgemm::matmul
