// Rates of a GPU that the plans count with.
#pragma once
#include <algorithm>
#include <cmath>

#include "device/properties.h"

namespace xgemm::matmul {

/// Figures of an H200, fitted to benchmarks/results/nvidia_h200/matmul_plans.json (tools/plan_costs) unless a comment says
/// otherwise. Another GPU has its own number of SMs and rates of memory.
struct Machine {
  int sm_count;
  double read_bytes = 4.0e12;       ///< per second: operands read once by many CTAs, C, and copies of operands (fp16_split/)
  double strips_bytes = 1.8e12;     ///< per second: the pass into fp16 parts of operands contiguous along their lines
  double l2_tma_bytes = 1.16e13;    ///< per second, of all SMs: boxes of TMA
  double l2_async_bytes = 7.92e12;  ///< per second, of all SMs: cp.async
  double join_bytes = 3.65e10;      ///< per second, of a CTA: partial sums of splits, written and read
};

/// Memory's rates in proportion to what its clock and bus give, in hundredths of an H200's: an H100's is 0.68.
inline Machine machine_of(const DeviceProperties& gpu) {
  constexpr std::size_t kH200 = std::size_t{2} * 3201'000'000 * 6144 / 8;  // bytes per second
  Machine machine{.sm_count = gpu.sm_count};
  if (gpu.memory_bytes_per_second <= 0) return machine;
  const double share = std::max(std::round(100 * gpu.memory_bytes_per_second / static_cast<double>(kH200)), 1.0) / 100;
  for (double* rate : {&machine.read_bytes, &machine.strips_bytes}) *rate *= share;
  return machine;
}

/// Clusters that run at once. A cluster lies in one GPC, and GPCs differ in their number of SMs (measured: 16 clusters of 8 and
/// 32 of 4 take two waves on 132 SMs; that 40 of 3, 24 of 5 and 16 of 7 do, and 40 of 6 three, is inferred from one product
/// each, 5x10x256x590, 16x768x3072, 99x120x4120 and 39x1264x8593; 36 of 3 do not).
constexpr std::int64_t clusters_at_once(std::int64_t cluster, int sm_count) {
  constexpr int kFewer[] = {0, 0, 1, 5, 2, 4, 3, 3, 2};  // than SMs over cluster, by the size of a cluster
  return std::max<std::int64_t>(1, sm_count / cluster - (cluster <= 8 ? kFewer[cluster] : 2));
}

}  // namespace xgemm::matmul
