// Position in a ring of slots that barriers guard.
#pragma once

namespace xgemm::ptx {

/// `parity` flips each time round: what barrier_wait() takes. `slots`: a ring may have fewer than there is room for.
template <int kSlots>
struct Ring {
  int slot = 0;
  unsigned parity = 0;
  __device__ __forceinline__ void advance(int slots = kSlots) {
    if (++slot == slots) {
      slot = 0;
      parity ^= 1;
    }
  }
};

}  // namespace xgemm::ptx
