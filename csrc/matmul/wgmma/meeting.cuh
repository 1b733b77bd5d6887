// CTAs that each hold a part of a tile's sums meet in memory, and those that stay add the parts, each a share of the tile.
//
//   A member writes its part, then meets. Members that have nothing else to do stay until all have come, and share the adding;
//   the others go on. Nobody relies on who stays: who waits too long (its fellows may not be running: other streams fill the
//   GPU) says so and leaves, and then the last to come adds the whole tile. Shares may be added twice, with the same bits.
#pragma once
#include <cstdint>

namespace xgemm::matmul {

/// Zero before and after.
struct Meeting {
  static constexpr unsigned kCame = 1, kStays = 1u << 10, kLeft = 1u << 20, kMask = 1023;
  unsigned state, departed;
};

/// The part of a tile's work that falls to a member: pieces rank, rank + of, ...; of = 0: nothing.
struct MeetingShare {
  unsigned rank, of;
};

/// One thread a member calls it, after a barrier that follows its threads' writes; those that read the parts do so after another
/// barrier. Then the thread departs.
__device__ __forceinline__ MeetingShare meet(Meeting& meeting, unsigned members, bool stays) {
  constexpr long long kPatience = 1 << 18;  // cycles
  __threadfence();
  const unsigned before = atomicAdd(&meeting.state, Meeting::kCame + (stays ? Meeting::kStays : 0u));
  const unsigned rank = before / Meeting::kStays & Meeting::kMask;
  MeetingShare share{0, 0};
  if ((before & Meeting::kMask) + 1 == members) {
    if (before >= Meeting::kLeft || rank == 0)
      share = {0, 1};
    else if (stays)
      share = {rank, rank + 1};
  } else if (stays) {
    const long long start = clock64();
    unsigned now;
    while (true) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(&meeting.state) : "memory");
      if ((now & Meeting::kMask) == members) break;
      if (clock64() - start > kPatience) {
        now = atomicAdd(&meeting.state, Meeting::kLeft);
        break;
      }
      __nanosleep(20);
    }
    if ((now & Meeting::kMask) == members) share = {rank, now / Meeting::kStays & Meeting::kMask};
  }
  __threadfence();
  return share;
}

__device__ __forceinline__ void depart(Meeting& meeting, unsigned members) {
  if (atomicAdd(&meeting.departed, 1u) != members - 1) return;
  meeting.departed = 0;  // nobody will look again
  meeting.state = 0;
}

}  // namespace xgemm::matmul
