// What the planner expects of a GPU, for Python: operators without tensors.
#include "matmul/plan/plan.h"
#include "torch/register.h"

namespace xgemm::matmul {
namespace {

/// Shared memory as CUDA's programming guide has it for a compute capability.
DeviceProperties gpu_of(std::int64_t arch, std::int64_t sm_count, double clock_hz, double memory_bytes_per_second) {
  const std::size_t sm_kib = arch == 80 || arch == 87 ? 164 : arch == 90 || arch == 100 ? 228 : 100;
  return {.major = static_cast<int>(arch / 10),
          .minor = static_cast<int>(arch % 10),
          .sm_count = static_cast<int>(sm_count),
          .smem_per_block = (sm_kib - 1) * 1024,
          .smem_per_sm = sm_kib * 1024,
          .clock_hz = clock_hz,
          .memory_bytes_per_second = memory_bytes_per_second};
}

/// The predicted time of a contiguous product (m, k) (k, n). dtype: as DType; precision: as Precision.
double product_seconds(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t dtype, std::int64_t precision,
                       std::int64_t arch, std::int64_t sm_count, double clock_hz, double memory_bytes_per_second) {
  Problem p;
  p.dtype = static_cast<DType>(dtype), p.precision = static_cast<Precision>(precision);
  p.m = m, p.n = n, p.k = k;
  p.a.row_stride = k, p.b.row_stride = n, p.a.col_stride = p.b.col_stride = 1;
  return seconds(make_plan(p, gpu_of(arch, sm_count, clock_hz, memory_bytes_per_second)).kernel);
}

/// Multiply-adds per second by mma.sync of 16 bits.
double mma_products(std::int64_t arch, std::int64_t sm_count, double clock_hz) {
  const Machine machine = machine_of(gpu_of(arch, sm_count, clock_hz, 0));
  return machine.rates.mma * machine.clock_hz * machine.sm_count;
}

/// Does fp32 in so many fp16 parts gain on a compute capability's tensor cores? Such a GPU prepares weights.
bool gains(std::int64_t arch, std::int64_t parts) {
  return splits_gain(machine_of(gpu_of(arch, 1, 0, 0)), static_cast<int>(parts));
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(XGEMM_NAMESPACE_xgemm_mode, m) {
  m.def(
      "product_seconds(int m, int n, int k, int dtype, int precision, int arch, int sm_count, float clock_hz, "
      "float memory_bytes_per_second) -> float");
  m.def("mma_products(int arch, int sm_count, float clock_hz) -> float");
  m.def("splits_gain(int arch, int parts) -> bool");
}

STABLE_TORCH_LIBRARY_IMPL(XGEMM_NAMESPACE_xgemm_mode, CompositeImplicitAutograd, m) {
  m.impl("product_seconds", TORCH_BOX(&product_seconds));
  m.impl("mma_products", TORCH_BOX(&mma_products));
  m.impl("splits_gain", TORCH_BOX(&gains));
}

}  // namespace xgemm::matmul
