// Which families of kernels may take a call on a GPU.
#pragma once
#include <string_view>

#include "attention/arguments.h"
#include "device/environment.h"
#include "device/properties.h"
#include "torch/error.h"

namespace xgemm::attention {

/// XGEMM_ATTENTION_PLAN: "simt" allows only CUDA cores (simt/), "wgmma" excludes mma.sync, "mma" wgmma; else tensor cores take
/// what they can, and decode/ takes few rows in fp32.
inline std::string_view wanted_plan(const char* op) {
  const std::string_view wanted = environment("XGEMM_ATTENTION_PLAN");
  check(wanted.empty() || wanted == "simt" || wanted == "wgmma" || wanted == "mma", op,
        "expected XGEMM_ATTENTION_PLAN to be simt, wgmma or mma, got ", wanted);
  return wanted;
}

/// Which tensor-core kernels the GPU has and the caller wants.
struct TensorCores {
  bool wgmma, mma;
  TensorCores(const DeviceProperties& gpu, std::string_view wanted)
      : wgmma(gpu.major == 9 && wanted != "simt" && wanted != "mma"), mma(wanted != "simt" && wanted != "wgmma") {}
  bool any() const { return wgmma || mma; }
};

/// Does every row of `o` start at a multiple of 16 bytes, with adjacent columns and, for half types, whole vectors of them?
inline bool vectorizable(const Operand& o, int batch_dims, std::int64_t columns, std::int64_t item) {
  bool aligned = (o.column == 1 || columns <= 1) && reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0;
  for (std::int64_t stride : {o.row, o.group}) aligned = aligned && stride * item % 16 == 0;
  for (int i = 0; i < batch_dims; ++i) aligned = aligned && o.batch[i] * item % 16 == 0;
  return aligned && (item > 2 || columns * item % 16 == 0);
}

}  // namespace xgemm::attention
