// Environment variables that choose among kernels. They are read at every call, so that a program can change them.
#pragma once
#include <cstdlib>
#include <string_view>

namespace xgemm {

/// Empty where the variable is not set.
inline std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// "" and "0" switch off.
inline bool switched_on(const char* name) {
  const std::string_view value = environment(name);
  return !value.empty() && value != "0";
}

/// Batch-invariant mode: a row's bits depend on its own data, its length, dtype and GPU alone.
inline bool batch_invariant() { return switched_on("XGEMM_BATCH_INVARIANT"); }

}  // namespace xgemm
