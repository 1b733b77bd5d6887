// The emulator's <cuda_pipeline.h>: the parts that csrc uses.
#pragma once
#include "device/ptx/cp_async.cuh"

inline void __pipeline_memcpy_async(void* to, const void* from, std::size_t bytes, std::size_t zeros = 0,
                                    emulation::Where where = emulation::Where::current()) {
  emulation::cp_async(to, from, bytes, bytes - zeros, where);
}
inline void __pipeline_commit() { xgemm::cp_async_commit(); }
inline void __pipeline_wait_prior(std::size_t pending) { emulation::cp_async_wait(pending); }
