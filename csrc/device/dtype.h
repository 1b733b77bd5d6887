// Element types that the kernels know, and how exactly fp32 is multiplied; free of torch. One enum for host dispatch, one C++
// type each for device code.
#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>

namespace xgemm {

enum class DType : std::uint8_t { f32, f16, bf16, f64, i64, i32, i16, i8, u8, boolean };

constexpr std::size_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16: return 2;
    default: return 1;
  }
}

constexpr bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }
constexpr bool is_floating(DType t) { return t == DType::f32 || t == DType::f64 || is_half(t); }

/// Of fp32 inputs. highest: at least as exact as SGEMM; ieee: fp32 multiply-adds; high, medium: TF32 or better (on the CPU
/// medium: bf16).
enum class Precision : std::uint8_t { highest, ieee, high, medium };

/// A kernel was asked for a dtype that plans never give it. (<stdexcept> includes <string>, which adds a second to the
/// compilation of every .cu.)
struct UnplannedDType : std::exception {
  const char* what() const noexcept override { return "xgemm: a kernel was asked for a dtype that it is not planned for"; }
};

}  // namespace xgemm
