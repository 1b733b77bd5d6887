// bf16x3: the kernel's configuration, its arguments and its shared memory.
#pragma once
#include <cuda.h>

#include "device/pipeline.cuh"
#include "device/shared_memory.cuh"
#include "device/warp.cuh"
#include "matmul/bf16x3/plan.h"
#include "matmul/launch.h"
#include "matmul/split_k/meeting.cuh"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation.
struct Bf16x3Config {
  bool k_major_b;  ///< B's columns are contiguous in shared memory
  bool fallback;   ///< the tiles and elements of Bf16x3Arguments::fallback
  bool short_k;    ///< K is one or two blocks, whole tiles
};

struct Bf16x3Arguments {
  CUtensorMap b;                    ///< dims (contiguous, other, batch); boxes of 32 by 128 (K-major) or 64
  bool tma;                         ///< loads B; else cp.async by the problem's strides
  bool a_along_k;                   ///< quads of A run along k (else along its rows)
  bool a_vectors;                   ///< quads of A are one access each
  bool plain;                       ///< nothing but alpha in the epilogue
  bool one_row;                     ///< one row of tiles and one batch
  int batch_step_b;                 ///< 0: one matrix for all batches
  unsigned rows, columns;           ///< tiles of C of a batch
  unsigned blocks, granule, units;  ///< k-blocks, k-blocks per unit, units per tile
  unsigned all_units;
  Meeting* meetings;     ///< [a tile's first CTA][consumer warpgroup]
  float* partials;       ///< [CTA][first or last split][consumer warpgroup][row][64 columns]
  FailedPairs fallback;  ///< this and the next three: fallback only
  FailedProduct failed;
  const FailedLines* prepared;  ///< of a prepared B's columns; else null
  unsigned* list;               ///< [n-th tile of a CTA][CTA]: the tiles with such elements
  Problem problem;
};

namespace bf16x3 {

/// Two ids each, one per consumer warpgroup.
enum NamedBarrier : int { kConsumerBarrier = 1, kPingPongBarrier = 3 };

inline constexpr int kBlock = kBf16x3Block, kRows = kBf16x3Tiles[0].m, kColumns = kBf16x3Columns, kParts = 3;
inline constexpr int kWarps = 16, kProducerWarps = 8, kConsumerWarps = 8,
                     kProducers = 32 * kProducerWarps;  // kProducers: threads
inline constexpr int kProducerRegisters = 72, kConsumerRegisters = 256 - kProducerRegisters;
inline constexpr int kSlotsA = 2, kSlotBytesB = kColumns * kBlock * 4;
inline constexpr int kStageRows = 32;  // of a warpgroup's sums that go through shared memory at once, on their way to C

/// The fallback's shared memory: its list of the CTA's tiles (fallback.cuh).
struct Fallback {
  unsigned tiles;  ///< of Bf16x3Arguments::list
  bool all;        ///< the tiles' elements are all computed again
  bool lifts_any;  ///< rows or columns may have to be lifted (fp16_split/line_scale.cuh)
  alignas(16) unsigned char answers[2][kWarps];
  /// Exponents that lift a producer warp's rows, and biased ones for a consumer warp's columns.
  unsigned char lifts[kWarps][16];
};

/// Shared memory of a CTA, and where its parts begin. Stage: where sums are rearranged to rows of C in memory.
struct Shared {
  static constexpr int kPartBytes = kRows * 128, kSlotBytesA = kParts * kPartBytes;
  static constexpr int kAlong = 64, kPitch = kAlong + 4;
  static constexpr int kStageBytes = kStageRows * kPitch * 4;  // of a consumer warpgroup
  // A in fp32: each producer thread copies units of 4 by 4 for itself, kAhead blocks before it splits them.
  static constexpr int kUnits = kRows / 4 * (kBlock / 4), kAhead = 2;
  static constexpr int kCopyBytes = kUnits * 4 * 16;  // of a block
  static constexpr int kOtherBytes =
      kSlotsA * kSlotBytesA + 2 * kStageBytes + kAhead * kCopyBytes + kSwizzlePattern + 512 /* barriers, flags */;
  static constexpr int kSlotsB = (227 * 1024 - kOtherBytes) / kSlotBytesB;
  static constexpr int kBytes = kOtherBytes + kSlotsB * kSlotBytesB;
  static_assert(kSlotsB >= 2 && 8 * (64 + kRows) * 4 <= kStageBytes);

  unsigned char* memory;
  unsigned char *slots_b = memory + swizzle_padding(memory), *slots_a = slots_b + kSlotsB * kSlotBytesB;
  float* stages = reinterpret_cast<float*>(slots_a + kSlotsA * kSlotBytesA);  ///< [consumer]
  unsigned char* copies =
      reinterpret_cast<unsigned char*>(stages) + 2 * kStageBytes;  ///< of A: [block ahead][row of a unit][unit]
  Pipeline<kSlotsB> pipeline_b{reinterpret_cast<ptx::Barrier*>(copies + kAhead * kCopyBytes)};
  Pipeline<kSlotsA> pipeline_a{pipeline_b.empty + kSlotsB};
  std::uint32_t* lost_a = reinterpret_cast<std::uint32_t*>(pipeline_a.empty + kSlotsA);  ///< [slot][splitting warp]
  MeetingShare* shares = reinterpret_cast<MeetingShare*>(lost_a + 8 * kSlotsA);          ///< [consumer]
  Fallback& fallback = *reinterpret_cast<Fallback*>(shares + 2);
};

/// Each role computes its warp: ptxas spills values that are computed before the roles branch.
__device__ __forceinline__ int warp_of_role() { return warp_uniform(thread_index() / 32); }

}  // namespace bf16x3
}  // namespace xgemm::matmul
