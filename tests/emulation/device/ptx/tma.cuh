// The emulator's csrc/device/ptx/tma.cuh.
#pragma once
#include <cuda.h>

#include "device/ptx/bulk_copy.cuh"

namespace xgemm::ptx {

inline void prefetch_tensor_map(const CUtensorMap*) {}

#define XGEMM_TMA(rank, ...)                                                                                                \
  inline void tma_load(void* destination, const CUtensorMap* map, Barrier* barrier, XGEMM_TMA_INTS##rank,                   \
                       Where where = Where::current()) {                                                                    \
    const int at[] = {__VA_ARGS__};                                                                                         \
    emulation::tensor_load(shared_address(destination, where), map, shared_address(barrier, where), rank, at, 0, where);    \
  }                                                                                                                         \
  inline void tma_load_multicast(void* destination, const CUtensorMap* map, Barrier* barrier, XGEMM_TMA_INTS##rank,         \
                                 std::uint16_t ctas, Where where = Where::current()) {                                      \
    const int at[] = {__VA_ARGS__};                                                                                         \
    emulation::tensor_load(shared_address(destination, where), map, shared_address(barrier, where), rank, at, ctas, where); \
  }                                                                                                                         \
  inline void tma_store(const CUtensorMap* map, const void* source, XGEMM_TMA_INTS##rank, Where where = Where::current()) { \
    const int at[] = {__VA_ARGS__};                                                                                         \
    emulation::tensor_store(map, shared_address(source, where), rank, at, where);                                           \
  }
#define XGEMM_TMA_INTS3 int c0, int c1, int c2
#define XGEMM_TMA_INTS4 XGEMM_TMA_INTS3, int c3
#define XGEMM_TMA_INTS5 XGEMM_TMA_INTS4, int c4
XGEMM_TMA(3, c0, c1, c2)
XGEMM_TMA(4, c0, c1, c2, c3)
XGEMM_TMA(5, c0, c1, c2, c3, c4)
#undef XGEMM_TMA
#undef XGEMM_TMA_INTS3
#undef XGEMM_TMA_INTS4
#undef XGEMM_TMA_INTS5

}  // namespace xgemm::ptx
