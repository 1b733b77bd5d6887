// What the row and the column kernel share: reading 16-byte vectors of any alignment, padding, and the last block's turn.
#pragma once
#include "device/bytes16.cuh"
#include "reduce/kernels/operators.cuh"

namespace xgemm::reduce {

inline constexpr int kUnroll = 4;

/// Raw elements that change no result: they stand where a row has no element.
template <class Op>
__device__ __forceinline__ uint4 padding(const Plan& plan) {
  return {plan.fill[0], plan.fill[1], plan.fill[2], plan.fill[3]};
}

/// A state written by another block of this launch: read past the L1 cache.
template <class State>
__device__ __forceinline__ State load_state(const State* p) {
  State s;
  constexpr int kWords = sizeof(State) / 4;
  static_assert(sizeof(State) % 4 == 0);
  unsigned words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __ldcg(reinterpret_cast<const unsigned*>(p) + i);
  __builtin_memcpy(&s, words, sizeof(State));
  return s;
}

/// True in every thread of the block that finds the others' partial results complete. `counter` starts at zero.
__device__ __forceinline__ bool is_last_block(unsigned* counter, std::int64_t split) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == static_cast<unsigned>(split - 1);
  __syncthreads();
  __threadfence();
  return last;
}

}  // namespace xgemm::reduce
