// The emulator's csrc/device/ptx/tma.cuh.
#pragma once
#include <cuda.h>

#include "device/ptx/bulk_copy.cuh"

namespace xgemm::ptx {

/// A map argument and the place of the call.
struct MapHere {
  MapHere(const CUtensorMap* map, Where where = Where::current()) : map(map), where(where) {}
  const CUtensorMap* map;
  Where where;
};

inline void prefetch_tensor_map(const CUtensorMap*) {}
template <class... Ints>
void tma_load(void* to, MapHere here, Barrier* barrier, Ints... at) {
  emulation::tensor_load(to, here.map, barrier, {at...}, 0, here.where);
}
inline void tma_load_multicast(void* to, MapHere here, Barrier* barrier, int c0, int c1, int c2, std::uint16_t ctas) {
  emulation::tensor_load(to, here.map, barrier, {c0, c1, c2}, ctas, here.where);
}
template <class... Ints>
void tma_store(MapHere here, const void* from, Ints... at) {
  emulation::tensor_store(here.map, from, {at...}, here.where);
}

}  // namespace xgemm::ptx
