// The emulator's csrc/device/ptx/cluster.cuh.
#pragma once
#include <cstring>

#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

inline std::uint32_t cluster_rank() { return emulation::cluster_rank(); }
inline std::uint32_t cluster_index() { return emulation::cluster_index(); }
inline void cluster_arrive_relaxed(Where where = Where::current()) { emulation::cluster_arrive(where); }
inline void cluster_wait(Where where = Where::current()) { emulation::cluster_wait(where); }

inline void cluster_arrive_thread(Where where = Where::current()) { emulation::cluster_arrive(where); }
inline void cluster_wait_thread(Where where = Where::current()) { emulation::cluster_wait(where); }
inline void cluster_sync(Where where = Where::current()) {
  emulation::cluster_arrive(where);
  emulation::cluster_wait(where);
}
inline void cluster_sync_warps(Where where = Where::current()) {
  __syncwarp(0xffffffffu, where);
  cluster_sync(where);
}

inline std::uint32_t remote_address(const void* mine, std::uint32_t rank, Where where = Where::current()) {
  return (shared_address(mine, where) & 0xffffffu) | rank << 24;
}
inline void barrier_arrive(const Barrier* mine, std::uint32_t rank, Where where = Where::current()) {
  emulation::barrier_arrive(remote_address(mine, rank, where), 0, where);
}
inline void barrier_arrive_remote_if(std::uint32_t address, bool really, Where where = Where::current()) {
  if (really) emulation::barrier_arrive(address, 0, where);
}
inline void store_remote(std::uint32_t address, unsigned value, Where where = Where::current()) {
  std::memcpy(emulation::shared_pointer(address, 4, 4, where), &value, 4);
}
inline void store_remote(std::uint32_t address, float x, float y, Where where = Where::current()) {
  const float values[2] = {x, y};
  std::memcpy(emulation::shared_pointer(address, 8, 8, where), values, 8);
}

template <class T>
void store_async(const void* to, const T& value, Barrier* barrier, std::uint32_t rank, Where where = Where::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  emulation::store_async(remote_address(to, rank, where), &value, sizeof(T), remote_address(barrier, rank, where), where);
}

}  // namespace xgemm::ptx
