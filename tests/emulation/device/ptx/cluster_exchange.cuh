// The emulator's csrc/device/ptx/cluster_exchange.cuh.
#pragma once
#include "device/ptx/cluster.cuh"

namespace xgemm::ptx {

inline std::uint32_t cluster_index() { return emulation::cluster_index(); }
inline void cluster_arrive_relaxed(Where where = Where::current()) { emulation::cluster_arrive(where); }
inline void cluster_wait(Where where = Where::current()) { emulation::cluster_wait(where); }

template <class T>
void store_async(const void* to, const T& value, Barrier* barrier, std::uint32_t rank, Where where = Where::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  emulation::store_async(remote_address(to, rank, where), &value, sizeof(T), remote_address(barrier, rank, where), where);
}

}  // namespace xgemm::ptx
