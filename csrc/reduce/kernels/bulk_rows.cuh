// Reduces many rows of about a strip's step each through shared memory, in the order of reduce_runs. A warp loads all rows that
// it reduces together by one bulk copy: loads in flight take no registers and no issue slots, and a target's logit is on chip.
//
// Layouts: rows of stride 1, evenly spaced; every row is whole 16-byte vectors at aligned addresses; results are contiguous.
// Limits: one strip; a warp's rows fit kBulkBytes. Architectures: sm_90 (bulk copies).
// Floor: every element read once. 24 warps of 8 KB fit an SM.
#pragma once
#include "device/ptx/bulk_copy.cuh"
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

inline constexpr int kBulkWarps = 4, kBulkBytes = 8 << 10;

template <class Op>
__global__ void __launch_bounds__(kBulkWarps* kWarpSize, 5)
    reduce_bulk_rows([[maybe_unused]] const __grid_constant__ Plan plan, [[maybe_unused]] const typename Op::T* __restrict__ in,
                     [[maybe_unused]] void* __restrict__ out) {
#if __CUDA_ARCH__ >= 900
  using T = typename Op::T;
  constexpr int kWidth = Pack<T>::kCount;
  extern __shared__ uint4 shared[];
  __shared__ ptx::Barrier barriers[kBulkWarps];

  const int me = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lanes = plan.lanes, log2_lanes = 31 - __clz(lanes), lane = me & (lanes - 1), step = kUnroll * lanes;
  const int team = me >> log2_lanes, teams = kWarpSize >> log2_lanes;
  const int full = static_cast<int>(plan.full);
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kBulkWarps + warp) * teams;
  const int count = static_cast<int>(min(plan.outputs - first, static_cast<std::int64_t>(teams)));
  if (count <= 0) return;
  ptx::Barrier* const loaded = &barriers[warp];
  uint4* const rows = shared + warp * teams * full;
  if (me == 0) {
    ptx::barrier_init(loaded, 1);
    ptx::fence_barrier_init();
  }
  __syncwarp();
  ptx::grid_release();
  in = ptx::grid_wait(in);
  if (me == 0) {
    const std::int64_t pitch = plan.kept.stride[0];
    const T* const from = in + first * pitch;
    const unsigned bytes = static_cast<unsigned>(full) * 16;
    ptx::barrier_arrive_expect(loaded, static_cast<unsigned>(count) * bytes);
    if (pitch == plan.length) {
      ptx::bulk_load(rows, from, static_cast<unsigned>(count) * bytes, loaded);
    } else {
      for (int r = 0; r < count; ++r) ptx::bulk_load(rows + r * full, from + r * pitch, bytes, loaded);
    }
  }
  const Convert<T> convert(plan);
  typename Op::Extra extra{};
  if (lane == 0 && team < count) extra.aim(plan, first + team);
  const uint4* const row = rows + team * full;
  const int vectors = team < count ? full : 0;
  typename Op::Local s = Op::start();
  ptx::barrier_wait(loaded, 0);
  for (int from = 0; from < full; from += step) {
    uint4 raw[kUnroll];
    if (from + step <= vectors) {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) raw[j] = row[from + lane + j * lanes];
    } else {
#pragma unroll
      for (int j = 0; j < kUnroll; ++j) {
        raw[j] = padding<Op>(plan);
        if (from + lane + j * lanes < vectors) raw[j] = row[from + lane + j * lanes];
      }
    }
    push_step<Op>(convert, s, raw, (from + lane) * kWidth, lanes * kWidth, vectors * kWidth, true);
  }
  if (lane == 0 && team < count) extra.template look<true>(plan, reinterpret_cast<const T*>(row));
  const typename Op::State joined = Op::state(s, convert, lanes, true, 0, [](uint4(&)[kUnroll], std::uint32_t) {});
  if (lane == 0 && team < count) Op::finish(plan, convert, joined, extra, out, first + team);
#endif
}

}  // namespace xgemm::reduce
