// The cost models' figures of a GPU: its number of SMs, and one table of measured rates.
#pragma once
#include <algorithm>
#include <cmath>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// Figures of an H200, each fitted to the runs that docs/log/matmul.md lists under the heading named. Another GPU has its
/// own number of SMs and rates of memory (machine_of). A kernel's own start and the cost of its tiles are in its family's table,
/// in the same units.
struct Machine {
  int sm_count;  ///< 132

  // Clock under load, Hz: the more power a kernel takes, the lower. (One figure for all three would change 3 to 13 golden
  // decisions.)
  double hertz_wgmma = 1.65e9;       ///< wgmma on 16-bit operands ("Half precision: shapes that cuBLAS was ahead in")
  double hertz_tensor = 1.7e9;       ///< tf32 and bf16x3: tensor cores that wait for conversions ("fp32 split in the main loop")
  double hertz_cuda_cores = 1.75e9;  ///< simt, and sliced, whose warps are few ("Few rows, fp32, weight K-major")

  // Memory, bytes per second of an H200.
  double read_bytes = 4.0e12;          ///< operands read once by many CTAs ("fp64 on tensor cores"; simt, gemv, mma, tf32)
  double wgmma_bytes = 3.3e12;         ///< the same of wgmma's pipelines, C included ("Half precision, small or narrow")
  double bf16x3_bytes = 2.85e12;       ///< the same of bf16x3's, whose producers also split ("3652 times of 744 products")
  double copy_bytes = 4.0e12;          ///< read and written by pack.cuh, 2-byte elements ("Half precision that TMA cannot load")
  double copy_bytes_fp32 = 3.8e12;     ///< the same, 4-byte elements ("\"high\" in TF32")
  double split_bytes = 3.54e12;        ///< the same by the pass into fp16 parts ("Three bf16 parts split by a pass")
  double split_strip_bytes = 1.93e12;  ///< of operands along their lines, in strips that clusters share

  // L2, bytes per second of all SMs together.
  double l2_bytes_fp64 = 11.3e12;  ///< cp.async of large tiles ("fp64: warps that only copy")
  double l2_bytes_mma = 5.5e12;    ///< cp.async of small tiles ("Half precision, small or narrow")

  double next_launch = 2.7e-6;  ///< seconds of a second kernel on CUDA cores that depends on the first ("Few rows, fp32")
};

/// Clusters that run at once. A cluster lies in one GPC, and GPCs differ in their number of SMs (measured: 16 clusters of 8 and
/// 32 of 4 take two waves on 132 SMs; that 40 of 3, 24 of 5 and 16 of 7 do, and 40 of 6 three, is inferred from one product
/// each, 5x10x256x590, 16x768x3072, 99x120x4120 and 39x1264x8593; 36 of 3 do not).
constexpr std::int64_t clusters_at_once(std::int64_t cluster, int sm_count) {
  constexpr int kFewer[] = {0, 0, 1, 5, 2, 4, 3, 3, 2};  // than SMs over cluster, by the size of a cluster
  return std::max<std::int64_t>(1, sm_count / cluster - (cluster <= 8 ? kFewer[cluster] : 2));
}

/// Memory's rates in proportion to what its clock and bus give, in hundredths of an H200's: an H100's is 0.68.
inline Machine machine_of(const DeviceProperties& gpu) {
  constexpr double kH200 = 2 * 3201e6 * 6144 / 8;
  Machine machine{.sm_count = gpu.sm_count};
  if (gpu.memory_bytes_per_second <= 0) return machine;
  const double share = std::max(std::round(100 * gpu.memory_bytes_per_second / kH200), 1.0) / 100;
  for (double* rate : {&machine.read_bytes, &machine.wgmma_bytes, &machine.bf16x3_bytes, &machine.copy_bytes,
                       &machine.copy_bytes_fp32, &machine.split_bytes, &machine.split_strip_bytes})
    *rate *= share;
  return machine;
}

/// Sizes of the kernels that load by TMA: its coordinates are of 32 bits, and tiles may end past the last line.
inline constexpr std::int64_t kMostLines = (std::int64_t{1} << 31) - 1024;

/// Requirements of all fp32 kernels on Hopper's tensor cores whose bits may depend on M, and which compute one product of
/// operands that were not prepared.
inline bool serves_fp32_on_tensor_cores(const Problem& p, const DeviceProperties& gpu) {
  return gpu.major == 9 && p.dtype == DType::f32 && p.precision != Precision::ieee && !p.batch_invariant && !p.gated &&
         !p.prepared_b && std::min({p.m, p.n, p.k}) >= 1 && std::max({p.m, p.n, p.k}) <= kMostLines;
}

/// The same of the one-launch fp32 kernels (gemv/sweep.cuh, sliced/kernel.cuh): also sizes and strides that fit 32 bits.
inline bool serves_one_launch_fp32(const Problem& p, const DeviceProperties& gpu) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - 4096;
  const auto steps = [](const Operand& x) {
    return x.row_stride >= 0 && x.row_stride < kLimit / 4 && x.col_stride >= 0 && x.col_stride < kLimit / 4;
  };
  return serves_fp32_on_tensor_cores(p, gpu) && std::max({p.m, p.n, p.k}) < kLimit && steps(p.a) && steps(p.b);
}

}  // namespace xgemm::matmul
