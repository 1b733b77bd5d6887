// Rates of a GPU that the plans count with.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "device/properties.h"

namespace xgemm::matmul {

/// Multiply-adds a clock and SM: fp32 on CUDA cores; mma.sync of 16 bits with fp32 sums (of GeForce cards; their professional
/// twins have twice as much); fp64 on CUDA cores; mma.sync in fp64, 0 where it does not pay. From NVIDIA's data sheets; 9.0's
/// measured (mma.sync reaches 0.63 of wgmma), 10.0's mma of 16 bits assumed.
struct ArchitectureRates {
  int major, minor, fma, mma, fma_f64, mma_f64;
};
inline constexpr ArchitectureRates kArchitectureRates[] = {
    {8, 0, 64, 1024, 32, 64},   {8, 6, 128, 256, 2, 0},     {8, 7, 128, 512, 2, 0},   {8, 9, 128, 256, 2, 0},
    {9, 0, 128, 1290, 64, 128}, {10, 0, 128, 1024, 64, 64}, {10, 3, 128, 1024, 2, 0}, {12, 0, 128, 256, 2, 0}};
inline constexpr ArchitectureRates kH200Rates = kArchitectureRates[4];
inline constexpr double kH200Clock = 1.7e9;          ///< under load
inline constexpr std::int64_t kH200L2 = 50'000'000;  ///< bytes

/// Those of the newest architecture that is not newer than the GPU.
inline const ArchitectureRates& rates_of(const DeviceProperties& gpu) {
  const ArchitectureRates* rates = kArchitectureRates;
  for (const ArchitectureRates& x : kArchitectureRates)
    if (std::pair(x.major, x.minor) <= std::pair(gpu.major, gpu.minor)) rates = &x;
  return *rates;
}

/// Bytes per second of an H200, fitted to benchmarks/results/nvidia_h200/matmul_plans.json (tools/plan_costs); of boxes of TMA
/// and of sums of splits to the run "Few tiles, long K" of docs/log/matmul.md.
struct Machine {
  int sm_count;
  double read_bytes = 4e12;         ///< operands read once by many CTAs, C, and passes over operands (fp16_split/)
  double l2_hit_bytes = 1.7e13;     ///< of all SMs: boxes of TMA, of operands that fit in L2,
  double l2_miss_bytes = 1.28e13;   ///< and of larger ones
  double l2_async_bytes = 7.92e12;  ///< of all SMs: other loads
  double join_bytes = 3.4e10;       ///< of a CTA: partial sums of splits, written and read
  double clock_hz{};                ///< under load
  ArchitectureRates rates{};

  /// Time of multiply-adds at one of the rates, relative to an H200's.
  double slower(int ArchitectureRates::*rate) const { return kH200Rates.*rate * kH200Clock / (rates.*rate * clock_hz); }
};

/// Memory's rates in proportion to what its clock and bus give, in hundredths of an H200's: an H100's is 0.68.
inline Machine machine_of(const DeviceProperties& gpu) {
  constexpr std::int64_t kH200 = std::int64_t{2} * 3201'000'000 * 6144 / 8;  // bytes per second
  const bool hopper = gpu.major == 9;
  const double clock = hopper || gpu.clock_hz <= 0 ? kH200Clock : 0.9 * gpu.clock_hz;
  Machine machine{.sm_count = gpu.sm_count, .clock_hz = clock, .rates = rates_of(gpu)};
  if (!hopper) machine.l2_async_bytes *= clock * gpu.sm_count / (kH200Clock * 132);
  if (gpu.memory_bytes_per_second > 0)
    machine.read_bytes *= std::max(std::round(100 * gpu.memory_bytes_per_second / static_cast<double>(kH200)), 1.0) / 100;
  return machine;
}

/// Does fp32 in so many fp16 parts take less time on tensor cores than on CUDA cores?
inline bool splits_gain(const Machine& machine, int parts) {
  return machine.rates.mma > (parts == 2 ? 3 : 1) * machine.rates.fma;
}

/// Clusters that run at once. A cluster lies in one GPC, and GPCs differ in their number of SMs (H200: 16 clusters of 8 and 32 of
/// 4 take two waves, measured; of the other sizes inferred from one product each).
constexpr std::int64_t clusters_at_once(std::int64_t cluster, int sm_count) {
  constexpr int kFewer[] = {0, 0, 1, 5, 2, 4, 3, 3, 2};  // than SMs over cluster, by the size of a cluster
  return std::max<std::int64_t>(1, sm_count / cluster - (cluster <= 8 ? kFewer[cluster] : 2));
}

}  // namespace xgemm::matmul
