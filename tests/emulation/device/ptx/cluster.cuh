// The emulator's csrc/device/ptx/cluster.cuh.
#pragma once
#include "device/ptx/mbarrier.cuh"

namespace xgemm::ptx {

std::uint32_t cluster_rank();
std::uint32_t cluster_index();
void cluster_arrive_relaxed(Where where = Where::current());
void cluster_wait(Where where = Where::current());
inline void cluster_arrive_thread(Where where = Where::current()) { cluster_arrive_relaxed(where); }
inline void cluster_wait_thread(Where where = Where::current()) { cluster_wait(where); }
inline void cluster_sync(Where where = Where::current()) {
  cluster_arrive_relaxed(where);
  cluster_wait(where);
}
inline void cluster_sync_warps(Where where = Where::current()) {
  __syncwarp(0xffffffffu, where);
  cluster_sync(where);
}

std::uint32_t remote_address(const void* mine, std::uint32_t rank, Where where = Where::current());
void barrier_arrive(const Barrier* mine, std::uint32_t rank, Where where = Where::current());
inline void barrier_arrive_remote_if(std::uint32_t address, bool really, Where where = Where::current()) {
  barrier_arrive_if(address, really, where);
}
inline void store_remote(std::uint32_t address, unsigned value, Where where = Where::current()) {
  *emulation::shared<unsigned>(address, where) = value;
}
inline void store_remote(std::uint32_t address, float x, float y, Where where = Where::current()) {
  *emulation::shared<float2>(address, where) = {x, y};
}

template <class T>
void store_async(const void* to, const T& value, Barrier* barrier, std::uint32_t rank, Where where = Where::current()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  emulation::store_async(remote_address(to, rank, where), &value, sizeof(T), remote_address(barrier, rank, where), where);
}

}  // namespace xgemm::ptx
