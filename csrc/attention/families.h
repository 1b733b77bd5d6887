// Which families of kernels may take a call on a GPU.
#pragma once
#include <algorithm>
#include <limits>
#include <string_view>

#include "attention/arguments.h"
#include "attention/fp16_split/tile.h"
#include "device/environment.h"
#include "device/properties.h"
#include "matmul/plan/machine.h"
#include "torch/error.h"

namespace xgemm::attention {

/// The families that the GPU has and XGEMM_ATTENTION_PLAN leaves: "simt" only simt/, "wgmma" excludes mma.sync, "mma" wgmma; else
/// tensor cores take what they can, and decode/ takes few rows in fp32.
struct Families {
  bool wgmma, mma, decode;
  Families(const DeviceProperties& gpu, const char* op) {
    const std::string_view wanted = environment("XGEMM_ATTENTION_PLAN");
    check(wanted.empty() || wanted == "simt" || wanted == "wgmma" || wanted == "mma", op,
          "expected XGEMM_ATTENTION_PLAN to be simt, wgmma or mma, got ", wanted);
    decode = wanted != "simt", wgmma = gpu.major == 9 && decode && wanted != "mma", mma = decode && wanted != "wgmma";
  }
};

/// For fewer keys the parts' 22 bits show in sums of one or two values, and nothing is gained.
inline constexpr int kFewestSplitKeys = 64;

/// Does fp32 in fp16 parts (fp16_split/) take less time on the GPU's tensor cores than torch's attention on its CUDA cores?
inline bool parts_gain(const DeviceProperties& gpu) { return gpu.major == 9 || matmul::splits_gain(matmul::machine_of(gpu), 2); }
inline bool parts_gain(const DeviceProperties& gpu, std::int64_t keys, std::int64_t d, std::int64_t dv) {
  return parts_gain(gpu) && (gpu.major == 9 || (keys >= kFewestSplitKeys && std::max(d, dv) <= kSplitMmaTiles.back().head_size));
}

/// A launch of so many CTAs needs them to fit 31 bits.
inline void check_ctas(const char* op, std::int64_t ctas) {
  check(ctas <= std::numeric_limits<std::int32_t>::max(), op, "expected fewer than 2^31 tiles of rows, got ", ctas);
}

/// Does every row of `o` start at a multiple of 16 bytes, with adjacent columns and, for half types, whole vectors of them?
inline bool vectorizable(const Operand& o, int batch_dims, std::int64_t columns, std::int64_t item) {
  bool aligned = (o.column == 1 || columns <= 1) && reinterpret_cast<std::uintptr_t>(o.data) % 16 == 0;
  for (std::int64_t stride : {o.row, o.group}) aligned = aligned && stride * item % 16 == 0;
  for (int i = 0; i < batch_dims; ++i) aligned = aligned && o.batch[i] * item % 16 == 0;
  return aligned && (item > 2 || columns * item % 16 == 0);
}

}  // namespace xgemm::attention
