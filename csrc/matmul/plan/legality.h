// What a family can compute, whatever the time; and the names that force a plan.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "device/properties.h"
#include "matmul/problem.h"

namespace xgemm::matmul {

/// Sizes of the kernels that load by TMA: its coordinates are of 32 bits, and tiles may end past the last line.
inline constexpr std::int64_t kMostLines = (std::int64_t{1} << 31) - 1024;

/// The families that can do a problem and that `forced` does not leave out. A family says in its kernel's header what it needs.
struct Legal {
  bool gemv, dot, sweep, outputs, simt, fp64, mma, large, sliced, tf32, bf16x3, wgmma;
};
Legal legal(const Problem& p, const DeviceProperties& gpu, std::string_view forced);

// XGEMM_MATMUL_PLAN, `forced` here: the name of a family ("wgmma") or of one of its tiles ("wgmma_128x128"), of fp64 and mma_tf32
// also with a number of splits of K ("fp64_64x64/4"); empty: the planner chooses.
bool names_a_tile(std::string_view forced);
bool leaves_out_tile(std::string_view forced, std::string_view tile);  ///< of a family that is not left out
std::optional<std::int64_t> forced_splits(std::string_view forced);
bool is_plan_name(std::string_view forced);
std::string plan_names();  ///< all of them, for a message

}  // namespace xgemm::matmul
