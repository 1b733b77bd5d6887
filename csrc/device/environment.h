// What chooses among kernels beside the call: environment variables, which are read at every call, and the mode.
#pragma once
#include <atomic>
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

/// The process's mode: torch_ext.set_batch_invariant(). XGEMM_BATCH_INVARIANT sets it at the start.
inline std::atomic<bool> batch_invariant_mode{switched_on("XGEMM_BATCH_INVARIANT")};

/// Must a row's bits depend on its own data, on N, K (or the row's length), dtype and GPU alone?
inline bool batch_invariant() { return batch_invariant_mode.load(std::memory_order_relaxed); }

}  // namespace xgemm
