// Adds the partial sums of a tile's splits of K in order, through memory, in the launch that computes them. (A cluster, as in
// wgmma/split_k.cuh, has at most eight CTAs.)
//
// The threads that have a split's sums (a CTA's, or a warpgroup's) write them, meet those of the other splits (meeting.cuh) and
// add a share of the tile each. Up to kMostLanes lanes of a warp share an element: each adds a run of splits in order, and their
// sums are added in pairs. How many lanes depends on the sizes alone, and so do the bits.
#pragma once
#include "device/warp.cuh"
#include "matmul/epilogue/quad.cuh"
#include "matmul/split_k/meeting.cuh"

namespace xgemm::matmul {

/// Adds splits `split` to split + kSplits - 1 (kWhole: all of them are before `end`) of kUnits units; all loads are issued first.
template <int kUnits, int kSplits, bool kWhole, class Offset>
__device__ __forceinline__ void add_next(Quad<float>* sums, const float* const* from, int split, int end, const Offset& offset) {
  float4 partial[kSplits][kUnits];
#pragma unroll
  for (int s = 0; s < kSplits; ++s)
#pragma unroll
    for (int i = 0; i < kUnits; ++i)
      partial[s][i] = __ldcg(reinterpret_cast<const float4*>(from[i] + offset(kWhole ? split + s : min(split + s, end - 1))));
#pragma unroll
  for (int s = 0; s < kSplits; ++s) {
    if (!kWhole && split + s >= end) break;
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const float4& x = partial[s][i];
      sums[i].v[0] += x.x, sums[i].v[1] += x.y, sums[i].v[2] += x.z, sums[i].v[3] += x.w;
    }
  }
}

/// Called by all kThreads threads after they have written their sums. Of `splits` splits; `stays`: the threads have no other
/// work. The tile's sums are counted in fours: `at(unit)` is the address of a split's unit 0 to units - 1, to which
/// offset(split) is added, or null if out of bounds; all lanes of a warp call `finish(unit, sum, whether this lane has the sum)`.
/// `sync`: a barrier of the kThreads threads.
template <int kThreads, int kMostLanes, int kDeep, class Sync, class At, class Offset, class Finish>
__device__ __forceinline__ void add_splits(Meeting& meeting, int splits, bool stays, MeetingShare* share, int thread, int units,
                                           const Sync& sync, const At& at, const Offset& offset, const Finish& finish) {
  // Few splits alone would leave too few loads in flight: their units are added together.
  constexpr int kFewSplits = 4, kTogether = kDeep >= 8 ? 4 : 2;
  sync();
  if (thread == 0) *share = meet(meeting, static_cast<unsigned>(splits), stays);
  sync();
  const int of = static_cast<int>(share->of), rank = static_cast<int>(share->rank), lane = thread % kWarpSize;
  const float* const exists = at(0);  // null: the whole tile is out of bounds
  if (of > 0 && exists != nullptr) {
    int lanes = 1;  // of a unit
    while (lanes < kMostLanes && 2 * lanes <= splits && 2 * lanes * units <= kThreads * splits) lanes *= 2;
    const int at_once = kWarpSize / lanes, run = (splits + lanes - 1) / lanes, first = lane / at_once * run,
              end = min(splits, first + run), turn = kThreads / lanes * of;
    const int together = lanes == 1 && splits <= kFewSplits ? kTogether : 1;
    const auto from_of = [&](int unit) { return unit < units ? at(unit) : nullptr; };
#pragma unroll 1
    for (int base = (thread / kWarpSize * of + rank) * at_once; base < units; base += turn * together) {
      const int unit = base + lane % at_once;
      Quad<float> sums[kTogether] = {};
      if (together > 1) {
        const float* from[kTogether];
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          from[i] = from_of(unit + i * turn);
          if (from[i] == nullptr) from[i] = exists;
        }
#pragma unroll 1
        for (int split = 0; split < splits; split += 2) add_next<kTogether, 2, false>(sums, from, split, splits, offset);
      } else if (const float* const from = from_of(unit)) {
        int split = first;
#pragma unroll 1
        for (; split + kDeep <= end; split += kDeep) add_next<1, kDeep, true>(sums, &from, split, end, offset);
#pragma unroll 1
        for (; split < end; split += 4) add_next<1, 4, false>(sums, &from, split, end, offset);
      }
      __syncwarp();
#pragma unroll 1
      for (int i = 0; i < together; ++i) {
        Quad<float> sum = sums[0];
#pragma unroll
        for (int other = 1; other < kTogether; ++other)
          if (i == other) sum = sums[other];
#pragma unroll 1
        for (int apart = at_once; apart < kWarpSize; apart *= 2) {
#pragma unroll
          for (float& x : sum.v) x += __shfl_xor_sync(kFullWarp, x, apart);
        }
        finish(unit + i * turn, sum, from_of(unit + i * turn) != nullptr && lane < at_once);
      }
    }
  }
  if (thread == 0) depart(meeting, static_cast<unsigned>(splits));
}

}  // namespace xgemm::matmul
