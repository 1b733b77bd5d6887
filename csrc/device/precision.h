// How exactly fp32 inputs are multiplied.
#pragma once
#include <cstdint>

namespace xgemm {

/// highest: at least as exact as SGEMM; ieee: fp32 multiply-adds; high, medium: TF32 or better (on the CPU medium: bf16).
enum class Precision : std::uint8_t { highest, ieee, high, medium };

}  // namespace xgemm
