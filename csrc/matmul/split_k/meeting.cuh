// CTAs that hold the partial sums of a tile's splits of K in memory wait for each other and share the addition.
//
//   A member writes its sums and calls meet(). Members without other work wait until all have arrived; each then adds a share of
//   the tile. A member that times out (the others may not be running: other streams fill the GPU) exits; the last member to
//   arrive then adds the whole tile. Shares may be added twice, with the same bits.
#pragma once
namespace xgemm::matmul {

/// Zero before and after.
struct Meeting {
  static constexpr unsigned kCame = 1, kStays = 1u << 10, kLeft = 1u << 20, kMask = 1023;
  unsigned state, departed;
};

/// What a member adds: units of work rank, rank + of, ...; of = 0: none.
struct MeetingShare {
  unsigned rank, of;
};

/// Called by one thread of a member, after a barrier that follows the CTA's writes. The CTA reads other members' sums after
/// another barrier; then that thread calls depart().
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
  meeting.departed = 0;  // no member reads it again
  meeting.state = 0;
}

}  // namespace xgemm::matmul
