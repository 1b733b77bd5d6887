// XGEMM_MATMUL_PLAN: the name of a family ("wgmma") or of one of its tiles ("wgmma_128x64"); empty: the planners choose.
#pragma once
#include <string_view>

namespace xgemm::matmul {

inline bool leaves_out_family(std::string_view forced, std::string_view family) {
  return !forced.empty() && !forced.starts_with(family);
}
inline bool names_a_tile(std::string_view forced) { return forced.find('_') != forced.npos; }
/// Of a family that is not left out.
inline bool leaves_out_tile(std::string_view forced, std::string_view tile) { return names_a_tile(forced) && forced != tile; }

}  // namespace xgemm::matmul
