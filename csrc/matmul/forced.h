// XGEMM_MATMUL_PLAN: the name of a family ("wgmma") or of one of its tiles ("wgmma_128x64"), of fp64 and mma_tf32 also with a
// number of splits of K ("fp64_64x64/4"); empty: the planners choose.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace xgemm::matmul {

inline bool leaves_out_family(std::string_view forced, std::string_view family) {
  return !forced.empty() && !forced.starts_with(family);
}
inline bool names_a_tile(std::string_view forced) { return forced.find('_') != forced.npos; }
/// Of a family that is not left out.
inline bool leaves_out_tile(std::string_view forced, std::string_view tile) { return names_a_tile(forced) && forced != tile; }

/// "fp64_64x64/4" without the number of splits.
inline std::string_view without_splits(std::string_view forced) { return forced.substr(0, forced.find('/')); }
/// That number; nothing if `forced` leaves it open.
inline std::optional<std::int64_t> forced_splits(std::string_view forced) {
  const auto slash = forced.find('/');
  if (slash == forced.npos) return {};
  std::int64_t splits = 0;
  std::from_chars(forced.data() + slash + 1, forced.data() + forced.size(), splits);
  return splits;
}

}  // namespace xgemm::matmul
