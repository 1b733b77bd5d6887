// What steps 11 to 13a share: a box in shared memory as wgmma sees it, one step of 64 along k, and how sums leave; from step 12
// on also the ring of tiles between a producer and two consumers. sm_90a only.
#pragma once
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "lab/tensor/tensor.h"

namespace xgemm::lab::tensor {

template <class Element>
using BoxOf = Element[kBoxRows][kBoxK];  // starts at a multiple of 1024 bytes
using Box = BoxOf<__nv_bfloat16>;
inline constexpr int kWarpgroup = 128;

/// `kSlots` tiles on their way: full once the bytes have come, empty once all consumers have read them.
template <class Slot, int kSlots>
struct RingOf {
  Slot slots[kSlots];
  ptx::Barrier full[kSlots], empty[kSlots];
};
struct Slot {
  Box a, b[2];
};
using Ring = RingOf<Slot, 4>;
inline constexpr int kRingSlots = 4, kRingM = 128, kRingN = 256, kRingThreads = 3 * kWarpgroup;  // a producer, two consumers

#ifdef XGEMM_LAB_HOPPER
/// By one thread; a barrier of the block, or of the cluster, follows. `consumers`: how many arrivals empty a slot.
template <class Slot, int kSlots>
__device__ __forceinline__ void init_ring(RingOf<Slot, kSlots>& ring, int consumers) {
  for (int i = 0; i < kSlots; ++i) {
    ptx::barrier_init(&ring.full[i], 1);
    ptx::barrier_init(&ring.empty[i], static_cast<std::uint32_t>(consumers));
  }
  ptx::fence_barrier_init();
}

/// sum += 64 rows of A times 2 kCount rows of B over one box's k. Issues only: commit and wait follow.
template <class Element, int kCount>
__device__ __forceinline__ void multiply(float (&sum)[kCount], const Element* a, const Element* b, bool accumulate) {
  using Layout = ptx::OperandLayout<true, 128, 0>;
#pragma unroll
  for (int k = 0; k < kBoxK / 16; ++k)
    ptx::Wgmma<Element, true, true>::mma(sum, Layout::descriptor(ptx::shared_address(a) + k * Layout::kStepBytes),
                                         Layout::descriptor(ptx::shared_address(b) + k * Layout::kStepBytes),
                                         accumulate || k > 0);
}

/// The sums of a warpgroup, 64 rows from (row, col) on, as wgmma.cuh lays them out.
template <int kCount>
__device__ __forceinline__ void store(const Problem& p, int row, int col, const float (&sum)[kCount]) {
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < kCount / 4; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      __nv_bfloat16* to =
          p.out + static_cast<std::int64_t>(row + 16 * warp + lane / 4 + 8 * h) * p.n + col + 8 * j + lane % 4 * 2;
      *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]);
    }
}
#endif

}  // namespace xgemm::lab::tensor
