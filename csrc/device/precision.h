// How exactly fp32 inputs are multiplied.
#pragma once
#include <cstdint>

namespace xgemm {

/// highest: at least as exact as SGEMM, by the fastest means; ieee: fp32 multiply-adds; high: TF32 or better; medium: the same
/// on a GPU, bf16 or better on the CPU.
enum class Precision : std::uint8_t { highest, ieee, high, medium };

}  // namespace xgemm
