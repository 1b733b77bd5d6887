// Collective operations of a warp's lanes: emulation::warp_collective().
#include <algorithm>
#include <cstring>

#include "device/ptx/warpgroup.cuh"
#include "state.h"

namespace emulation {
namespace {

void finish(Warp& warp, std::size_t at) {
  const Collective done = warp.open[at];
  warp.open.erase(warp.open.begin() + static_cast<std::ptrdiff_t>(at));
  done.compute(done.arguments);
  for (int lane = 0; lane < 32; ++lane)
    if (done.arrived >> lane & 1 && warp.lanes[lane] != current) wake(warp.lanes[lane]);
}

}  // namespace

void warp_collective(unsigned mask, void* arguments, void (*compute)(Arguments32), const char* name, Where where) {
  Warp& warp = current->block->warps[current->warp];
  const unsigned bit = 1u << current->lane;
  if (!(mask & bit)) fail(text(name, " by a lane that its mask does not name"), where);
  std::size_t at = 0;
  for (; at < warp.open.size(); ++at) {
    Collective& other = warp.open[at];
    if (other.mask == mask && other.compute == compute && std::strcmp(other.name, name) == 0) break;
    // Halves of a warp may call collectives of their own before all lanes do. It is an error if two lanes wait for each other.
    if (!(other.arrived & mask) || !(other.mask & bit)) continue;
    fail(text(name, " meets ", other.name, " of ", describe(other.where), other.mask == mask ? "" : ", whose mask is another"),
         where);
  }
  if (at == warp.open.size()) warp.open.push_back({mask, 0, compute, name, where, {}});
  Collective& mine = warp.open[at];
  mine.arrived |= bit;
  mine.arguments[current->lane] = arguments;
  if ((mine.mask & warp.live & ~mine.arrived) == 0)
    finish(warp, at);
  else
    block(name, mask, 0, where);
}

void recheck_collectives(Block& block, int index) {
  Warp& warp = block.warps[index];
  for (std::size_t i = 0; i < warp.open.size();)
    if ((warp.open[i].mask & warp.live & ~warp.open[i].arrived) == 0)
      finish(warp, i);
    else
      ++i;
}

}  // namespace emulation

bool xgemm::ptx::elect_one(Where where) {
  bool elected = false;
  const auto elect_first = [](emulation::Arguments32 lanes) {
    void* const first = *std::find_if(lanes, lanes + 32, [](void* lane) { return lane != nullptr; });
    *static_cast<bool*>(first) = true;
  };
  emulation::warp_collective(~0u, &elected, elect_first, "elect.sync", where);
  return elected;
}

void __syncwarp(unsigned mask, emulation::Where where) {
  int nothing = 0;
  emulation::warp_collective(mask, &nothing, [](emulation::Arguments32) {}, "__syncwarp", where);
}
