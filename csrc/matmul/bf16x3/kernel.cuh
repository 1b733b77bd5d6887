// fp32 product on Hopper's tensor cores (sm_90a) in one launch: operands are split in bf16 parts on the way, no pass over
// them, no scaling, no copy in memory. For products that are too small, too narrow or too flat for fp16_split/split.cuh and
// wgmma/kernel.cuh, which take half the tensor-core time but read and write the operands first. out = epilogue(A B) as
// epilogue/apply.cuh says.
//
//   Split     x = hi + mid + lo, eight bits of x each, rounded to nearest: exact, and of any exponent. Six
//             products (lo hi, hi lo, mid mid, mid hi, hi mid, hi hi); what is dropped is under 2^-24 of |A||B|.
//   Roles     Warpgroups 0 and 1 bring B (128 columns by 64 of k) to shared memory: by TMA, or by cp.async an element where
//             base or strides are no multiples of 16 bytes. They also read A (kRows by 64; any strides), split it, and write
//             the parts as wgmma's K-major operand. Warpgroups 2 and 3 take 64 columns each: they read B from shared memory in
//             the order of wgmma's register operand, split it in registers, and multiply: C^T = B^T A^T, so that a weight, the
//             large operand of a layer, never goes through shared memory twice. They take turns: one splits while the other
//             multiplies.
//   Mirrored  C^T = B^T A^T as a problem of its own, for a tall and narrow C: A takes the 128-wide register operand's place.
//             Only the way sums take from registers to memory differs; epilogue operands are those of C. A comes by TMA.
//   Promotion after each block of 64 k. hi hi has an accumulator of its own: its products have 16 bits, so that the tensor
//             core, which truncates, seldom has to; what the others lose is 2^-8 smaller. They stay in their accumulator for
//             kFlush blocks, and what promotion rounds off goes on with them. So what rounds is the truncation within a block,
//             of which the mean is given back, and a sum's end.
//   Short K   of one or two blocks: few terms are the sum, and truncation shows. The running sum's registers are free in a tile's
//             first block, so every other step of 16 is summed in them; tiles are whole.
//   Work      All tiles' blocks in one row, in units of `granule` blocks, cut in equal pieces for the CTAs. Of a tile that
//             several CTAs share, each leaves its sums in memory; they meet there (meeting.cuh), add them in the order of k and
//             store, some rows each. So the order of additions depends on the problem and the GPU alone.
//   Exactness Inf and NaN stand in hi alone: their other parts are NaN, and so is a sum of small products with one, which then
//             does not count. What rounds to infinity, and what is so small (under 2^-109) that lo loses bits, is seen while
//             splitting; a warpgroup that met any of all these looks at its lines, and if it is not Inf and NaN alone, does its
//             piece again by fused multiply-adds.
//   Picks     The last launch of a product in fp16 parts (fp16_split/split.cuh): whole tiles, every gridDim.x-th a CTA's, of
//   those
//             that have pairs of lines which fp16 parts do not carry, and such elements alone are written. Where all failed
//             nothing else has been written, and they write all. Low lines are lifted by a power of two on the
//             way, so that only lines of more than about 100 binary orders of magnitude have numbers that are too small.
//   Limits    sizes under 2^31; batches as epilogue.cuh.
//
// Floors: 6 products of 2 M N K flop at 4096 a cycle and multiprocessor; bytes of A, B and C once. Measured, a block of 64
// rows by 128 columns takes 2750 cycles, its six products 1536: splitting is about 1300 issue slots a scheduler, and 48 KiB a
// block come from L2.
#pragma once
#include <cuda.h>

#include <cfloat>

#include "device/pipeline.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/shared_memory.cuh"
#include "matmul/bf16x3/plan.h"
#include "matmul/simt/kernel.cuh"
#include "matmul/wgmma/meeting.cuh"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct DirectConfig {
  int rows;        ///< of C a CTA
  bool k_major_b;  ///< B's columns lie contiguous in shared memory
  bool mirrored;   ///< the problem is that of the transposed product (problem.h)
  bool picks;      ///< tiles and elements of DirectArguments::only
  bool short_k;    ///< K is one or two blocks, whole tiles
};

struct DirectArguments {
  CUtensorMap b;                    ///< dims (contiguous, other, batch); boxes of 32 by 128 (K-major) or 64
  bool tma;                         ///< else cp.async by the problem's strides
  bool a_along_k;                   ///< quads of A run along k (else along its rows)
  bool a_vectors;                   ///< and are one access each
  bool plain;                       ///< nothing but alpha in the epilogue
  bool one_row;                     ///< of tiles, and one batch
  int batch_step_b;                 ///< 0: one matrix for all batches
  unsigned rows, columns;           ///< tiles of C of a batch
  unsigned blocks, granule, units;  ///< k-blocks, those of a unit, units of a tile
  unsigned all_units;
  Meeting* meetings;  ///< [first CTA of a shared tile][warpgroup]
  float* partials;    ///< [CTA][first or last piece][warpgroup][row][64 columns]
  FailedPairs only;   ///< picks, and what follows
  FailedProduct failed;
  const FailedLines* prepared;  ///< of a prepared B's lines; else null
  unsigned* list;               ///< [n-th tile of a CTA][CTA]: the tiles that have such elements
  Problem problem;
};

namespace direct_detail {

/// Two each, one a consumer.
enum NamedBarrier : int { kConsumerBarrier = 1, kTurnBarrier = 3 };

inline constexpr int kBlock = kDirectBlock, kWarps = 16, kSplitters = 256, kSlotsA = 2, kParts = 3;
inline constexpr int kSplitRows = kSplitters / 4;  // of A that the splitting warps take at once
inline constexpr int kSlotBytesB = kDirectColumns * kBlock * 4;
/// What truncation takes off a block's sum of hi hi (measured: about an ulp), as a part of it; nothing off a sum that ends in
/// zeros, as a single product does.
inline constexpr float kTruncated = 0x1p-24f;
inline constexpr unsigned kTruncatedBits = 15;
inline constexpr unsigned kFlush = 16;  // blocks after which small products' sums are added: truncation shrinks them all the time
/// NaN and infinities of what is to be added go: where it has one, the sum is infinite or NaN without it.
__device__ __forceinline__ float number(float x) { return fminf(fmaxf(x, -FLT_MAX), FLT_MAX); }
inline constexpr int kSumRows = 32;  // sums on their way from registers to C: of a warpgroup's 64 columns, so many rows at once

template <class Config>
struct Shared {
  static constexpr DirectConfig kConfig = Config::kValue;
  static constexpr int kPartBytes = kConfig.rows * 128;
  static constexpr int kSlotBytesA = kParts * kPartBytes;
  // Rows of C as they lie in memory, which are the warpgroup's columns in a mirrored problem.
  static constexpr int kLines = kConfig.mirrored ? 64 : kSumRows, kAlong = kConfig.mirrored ? kSumRows : 64,
                       kPitch = kAlong + (kConfig.mirrored ? 2 : 4);
  static constexpr int kSumBytes = kLines * kPitch * 4;  // of a consumer warpgroup
  // A on its way: each splitting thread copies units of 4 by 4 for itself, kAhead blocks before it needs them.
  static constexpr int kUnits = kConfig.rows / 4 * (kBlock / 4);
  static constexpr int kAhead = 64 / kConfig.rows + 1;
  static constexpr int kCopyBytes = kUnits * 4 * 16;  // of a block
  static constexpr int kRest =
      kSlotsA * kSlotBytesA + 2 * kSumBytes + kAhead * kCopyBytes + kSwizzlePattern + 512 /* barriers, flags */;
  static constexpr int kSlotsB = (227 * 1024 - kRest) / kSlotBytesB;
  static constexpr int kBytes = kRest + kSlotsB * kSlotBytesB;
  static_assert(kSlotsB >= 2 && 8 * (64 + kConfig.rows) * 4 <= kSumBytes);
};

/// What a CTA picks: so many tiles of DirectArguments::list, whole or only some of their elements.
struct Picked {
  unsigned tiles;
  bool all;        ///< whole
  bool lifts_any;  ///< lines may have to be lifted (line_scale.cuh)
  alignas(16) unsigned char answers[2][kWarps];
  /// Exponents that lift the rows that a splitting warp has, and biased ones of a multiplying warp's columns.
  unsigned char lifts[kWarps][16];
};

/// Walks the pieces of this CTA's share: runs of blocks of one tile. Picks: the tiles of the CTA's list.
template <class Config>
struct Walk {
  static constexpr bool kPicks = Config::kValue.picks, kWhole = kPicks || Config::kValue.short_k;
  const DirectArguments& g;
  unsigned unit, last;  // in the row of all tiles' units
  unsigned taken;
  int block, end;  // of the tile

  __device__ __forceinline__ Walk(const DirectArguments& arguments, const Picked& picked) : g(arguments) {
    unit = kPicks ? 0 : share(blockIdx.x);
    last = kPicks ? picked.tiles : share(blockIdx.x + 1);
    open();
  }
  /// First unit of CTA `cta`, and the CTA that has a unit.
  __device__ __forceinline__ unsigned share(unsigned cta) const {
    return static_cast<unsigned>(static_cast<std::uint64_t>(cta) * g.all_units / gridDim.x);
  }
  __device__ __forceinline__ unsigned owner(unsigned of) const {
    return static_cast<unsigned>((static_cast<std::uint64_t>(of + 1) * gridDim.x - 1) / g.all_units);
  }
  __device__ __forceinline__ bool done() const { return unit >= last; }
  __device__ __forceinline__ bool whole() const { return kWhole || taken == g.units; }
  __device__ __forceinline__ void next_piece() {
    unit += taken;
    if (!done()) open();
  }
  __device__ __forceinline__ void open() {
    if constexpr (kWhole) {
      taken = 1, block = 0, end = static_cast<int>(g.blocks);
      return;
    }
    const unsigned within = g.units == 1 ? 0 : unit % g.units;
    taken = min(g.units - within, last - unit);
    block = static_cast<int>(within * g.granule);
    end = static_cast<int>(min(g.blocks, (within + taken) * g.granule));
  }
  struct Place {
    int row, column, batch;
  };
  __device__ __forceinline__ Place place() const {
    if constexpr (kPicks) return done() ? Place{0, 0, 0} : place_of(g, g.list[unit * gridDim.x + blockIdx.x]);
    return place_of(g, kWhole || g.units == 1 ? unit : unit / g.units);
  }
  __device__ __forceinline__ static Place place_of(const DirectArguments& g, unsigned tile) {
    // Groups of eight rows of tiles, column by column, so that CTAs in flight share operands in L2.
    constexpr unsigned kGroup = 8;
    if (g.one_row) return {0, static_cast<int>(tile) * kDirectColumns, 0};  // many short tiles: divisions would show
    const unsigned per_batch = g.rows * g.columns, in_batch = tile % per_batch, group = in_batch / (kGroup * g.columns);
    const unsigned in_group = in_batch - group * kGroup * g.columns, height = min(kGroup, g.rows - group * kGroup);
    return {static_cast<int>(group * kGroup + in_group % height) * Config::kValue.rows,
            static_cast<int>(in_group / height) * kDirectColumns, static_cast<int>(tile / per_batch)};
  }
};

/// Where a batch's statistics of A's lines begin, and those of B's.
__device__ __forceinline__ const LineStats* stats_a(const DirectArguments& g, int batch) {
  return g.only.a + static_cast<std::int64_t>(batch) * g.only.batch_step_a * g.problem.m;
}
__device__ __forceinline__ const LineStats* stats_b(const DirectArguments& g, int batch) {
  return g.only.b + static_cast<std::int64_t>(batch) * g.only.batch_step_b * g.problem.n;
}

/// One warp: do the worst of the tile's lines pair well?
template <class Config>
__device__ __forceinline__ bool tile_is_well(const DirectArguments& g, unsigned tile) {
  const Problem& p = g.problem;
  const auto at = Walk<Config>::place_of(g, tile);
  const auto worst = [&](const LineStats* stats, auto lines, int left) {
    LineQuality all{1 << 14, 1 << 14};
#pragma unroll
    for (int i = 0; i < lines() / kWarpSize; ++i) {
      const int line = min(static_cast<int>(threadIdx.x) % kWarpSize + i * kWarpSize, left - 1);
      const LineQuality mine = line_quality(stats[line], p.k);
      all = {min(all.density, mine.density), min(all.filled, mine.filled)};
    }
    return LineQuality{__reduce_min_sync(kFullWarp, all.density), __reduce_min_sync(kFullWarp, all.filled)};
  };
  return pairs_well(
      worst(stats_a(g, at.batch) + at.row, std::integral_constant<int, Config::kValue.rows>{}, static_cast<int>(p.m) - at.row),
      worst(stats_b(g, at.batch) + at.column, std::integral_constant<int, kDirectColumns>{}, static_cast<int>(p.n) - at.column));
}

/// Lists the CTA's tiles: of every gridDim.x-th those that are not well, or all. False: none.
template <class Config>
__device__ __forceinline__ bool pick_tiles(const DirectArguments& g, Picked& picked) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const uint4 counts = __ldcg(reinterpret_cast<const uint4*>(g.failed.lines));  // FailedLines
  const FailedLines prepared = g.prepared ? *g.prepared : FailedLines{};
  // The last to come clears what all have read.
  const auto leave = [&] {
    if (counts.w != 0 && (atomicAdd(&g.failed.lines->state, 1u) & 0xffffu) == gridDim.x - 1)
      *reinterpret_cast<uint4*>(g.failed.lines) = {0, 0, 0, 0};
  };
  const unsigned a = counts.w >> FailedLines::kLevelsOfA & 7, b = (counts.w | prepared.state) >> FailedLines::kLevelsOfB & 7;
  if (((a | b) & 2) == 0 || ((a & 1) | (b & 4)) == 0 || ((a & 4) | (b & 1)) == 0) {  // ordinary lines alone
    __syncthreads();
    if (threadIdx.x == 0) leave();
    return false;
  }
  const bool all = counts.x == g.failed.lines_a || counts.y == g.failed.lines_b;
  unsigned tiles = 0;
  int turn = 0;
#pragma unroll 1
  for (unsigned first = blockIdx.x; first < g.all_units; first += kWarps * gridDim.x, turn ^= 1) {
    const unsigned tile = first + static_cast<unsigned>(warp) * gridDim.x;
    const bool mine = tile < g.all_units && (!tile_is_well<Config>(g, tile) || all);
    if (threadIdx.x % kWarpSize == 0) picked.answers[turn][warp] = mine;
    __syncthreads();
    const auto answers = load_vector<2>(reinterpret_cast<const std::uint64_t*>(picked.answers[turn]));
    const std::uint64_t before = (std::uint64_t{1} << warp % 8 * 8) - 1;  // the warps that come first
    const int at = warp < 8 ? __popcll(answers[0] & before) : __popcll(answers[0]) + __popcll(answers[1] & before);
    if (mine && threadIdx.x % kWarpSize == 0) g.list[(tiles + static_cast<unsigned>(at)) * gridDim.x + blockIdx.x] = tile;
    tiles += static_cast<unsigned>(__popcll(answers[0]) + __popcll(answers[1]));
  }
  if (threadIdx.x == 0) {
    picked.tiles = tiles, picked.all = all, picked.lifts_any = counts.z > 0 || prepared.low > 0;
    leave();
  }
  __syncthreads();
  return tiles > 0;
}

/// Two numbers in three bf16 pairs, the first number in the lower halves. `lost` gathers in its lower 16 bits what says that a
/// number is not carried exactly; Inf and NaN leave a NaN of ones.
__device__ __forceinline__ void split_pair(float x, float y, std::uint32_t (&parts)[kParts], std::uint32_t& lost) {
  const auto rounded = [](float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const std::uint32_t&>(pair);
  };
  const auto first = [](std::uint32_t pair) { return __uint_as_float(pair << 16); };
  const auto second = [](std::uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); };
  parts[0] = rounded(x, y);
  const float rx = x - first(parts[0]), ry = y - second(parts[0]);
  parts[1] = rounded(rx, ry);
  const float lx = rx - first(parts[1]), ly = ry - second(parts[1]);
  parts[2] = __byte_perm(__float_as_uint(lx), __float_as_uint(ly), 0x7632);
  lost |= __float_as_uint(lx) | __float_as_uint(ly);
}

__device__ __forceinline__ bool is_extreme_number(float x) { return is_extreme(__float_as_uint(x) & 0x7fffffffu); }

inline constexpr int kFarReach = 1024;

/// The largest biased exponent of finite numbers among a thread's share of `lines`, of k from `begin` to `end`; extreme ones
/// (line_scale.cuh) count as kFarReach.
__device__ __forceinline__ int reach_of(const float* x, int lines, std::int64_t line_stride, std::int64_t k_stride,
                                        std::int64_t begin, std::int64_t end) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const bool along_k = k_stride == 1;  // lanes along what is contiguous, warps along the other
  const std::int64_t inner_end = along_k ? end : lines, outer_end = along_k ? lines : end;
  const std::int64_t inner_stride = along_k ? k_stride : line_stride, outer_stride = along_k ? line_stride : k_stride;
  unsigned top = 0;
  bool extreme = false;
#pragma unroll 1
  for (std::int64_t outer = (along_k ? 0 : begin) + warp; outer < outer_end && !extreme; outer += 16) {
#pragma unroll 1
    for (std::int64_t inner = (along_k ? begin : 0) + lane; inner < inner_end; inner += 128) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const bool inside = outer + 4 * i < outer_end && inner + 32 * j < inner_end;
          const float value = inside ? x[(outer + 4 * i) * outer_stride + (inner + 32 * j) * inner_stride] : 0.f;
          const unsigned bits = __float_as_uint(value) & 0x7fffffffu;
          extreme |= is_extreme(bits);
          top = max(top, bits < kInfinityBits ? bits : 0u);
        }
    }
  }
  return extreme ? kFarReach : static_cast<int>(top >> 23);
}

/// Is there what three bf16 parts do not carry, or may a sum of these numbers' products leave their range? `scratch`: two words.
__device__ __forceinline__ bool beyond_parts(const float* a, int rows, std::int64_t row_stride, std::int64_t a_stride,
                                             const float* b, int columns, std::int64_t column_stride, std::int64_t b_stride,
                                             std::int64_t begin, std::int64_t end, int barrier, int* scratch) {
  if (threadIdx.x % 128 < 2) scratch[threadIdx.x % 128] = 0;
  ptx::named_barrier_sync(barrier, 128);
  const int reach_a = __reduce_max_sync(kFullWarp, reach_of(a, rows, row_stride, a_stride, begin, end)),
            reach_b = __reduce_max_sync(kFullWarp, reach_of(b, columns, column_stride, b_stride, begin, end));
  if (threadIdx.x % 32 == 0) {
    atomicMax(&scratch[0], reach_a);
    atomicMax(&scratch[1], reach_b);
  }
  ptx::named_barrier_sync(barrier, 128);
  const bool beyond = scratch[0] + scratch[1] >= direct_reach_limit(end - begin);
  ptx::named_barrier_sync(barrier, 128);  // before scratch is used again
  return beyond;
}

/// The product's element-by-element form for a warpgroup's piece: C^T as wgmma leaves it in registers, k from `begin` to `end`.
/// `stage`: (64 + rows) * 8 floats. The lines of B start at `column`.
template <class Config>
__device__ __forceinline__ void exact_piece(float (&sums)[Config::kValue.rows / 2], const DirectArguments& g, const float* a,
                                            const float* b, int rows, int columns, std::int64_t begin, std::int64_t end,
                                            float* stage, int barrier, int first_line, int second_line) {
  constexpr int kRows = Config::kValue.rows, kDepth = 8;
  unsigned index;  // read anew: ptxas would keep what follows from it through the main loop
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  const int thread = static_cast<int>(index) % 128, quad = thread % 4;
  const Problem& p = g.problem;
  float* const of_b = stage + kDepth * kRows;
#pragma unroll
  for (float& sum : sums) sum = 0;
  constexpr int kChunk = 16;  // short chains, and what their addition rounds off, as K may be long
  float chunk[kRows / 2] = {}, off[kRows / 2] = {};
  for (std::int64_t k0 = begin; k0 < end; k0 += kDepth) {
    ptx::named_barrier_sync(barrier, 128);
    for (int i = thread; i < kDepth * (kRows + 64); i += 128) {
      const bool is_b = i >= kDepth * kRows;
      const int at = is_b ? i - kDepth * kRows : i, lines = is_b ? 64 : kRows;
      const std::int64_t line_stride = is_b ? p.b.col_stride : p.a.row_stride, k_stride = is_b ? p.b.row_stride : p.a.col_stride;
      const int line = k_stride == 1 ? at / kDepth : at % lines, k = k_stride == 1 ? at % kDepth : at / lines;
      const bool inside = line < (is_b ? columns : rows) && k0 + k < end;
      (is_b ? of_b : stage)[k * lines + line] = inside ? (is_b ? b : a)[line * line_stride + (k0 + k) * k_stride] : 0.f;
    }
    ptx::named_barrier_sync(barrier, 128);
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      const float x = of_b[k * 64 + first_line], y = of_b[k * 64 + second_line];
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        const auto rows_here = load_vector<2>(stage + k * kRows + 8 * j + 2 * quad);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          chunk[4 * j + c] = fmaf(x, rows_here[c], chunk[4 * j + c]);
          chunk[4 * j + 2 + c] = fmaf(y, rows_here[c], chunk[4 * j + 2 + c]);
        }
      }
    }
    if ((k0 - begin) % kChunk == kChunk - kDepth || k0 + kDepth >= end) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) {
        const float sum = sums[i] + chunk[i];
        off[i] += chunk[i] - (sum - sums[i]);
        sums[i] = sum;
        chunk[i] = 0;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sums[i] += number(off[i]);
  ptx::named_barrier_sync(barrier, 128);
}

}  // namespace direct_detail

template <class Config>
__global__ void __launch_bounds__(32 * direct_detail::kWarps, 1) direct_fp32(const __grid_constant__ DirectArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace direct_detail;
  constexpr DirectConfig kConfig = Config::kValue;
  using Memory = Shared<Config>;
  constexpr bool kKMajorB = kConfig.k_major_b;
  constexpr int kRows = kConfig.rows, kSlotsB = Memory::kSlotsB, kSums = kRows / 2;
  constexpr bool kMirrored = kConfig.mirrored, kPicks = kConfig.picks, kShort = kConfig.short_k;
  const bool tma = kMirrored || g.tma;
  constexpr int kPitch = Memory::kPitch, kLines = Memory::kLines, kAlong = Memory::kAlong;
  constexpr int kConsumerWarps = 8, kSteps = kBlock / 16, kHelperRegisters = 72;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots_b = shared_memory + swizzle_padding(shared_memory);
  unsigned char* const slots_a = slots_b + kSlotsB * kSlotBytesB;
  float* const sum_rows = reinterpret_cast<float*>(slots_a + kSlotsA * Memory::kSlotBytesA);
  const Pipeline<kSlotsB> pipeline_b{reinterpret_cast<ptx::Barrier*>(
      reinterpret_cast<unsigned char*>(sum_rows) + 2 * Memory::kSumBytes + Memory::kAhead * Memory::kCopyBytes)};
  const Pipeline<kSlotsA> pipeline_a{pipeline_b.empty + kSlotsB};
  std::uint32_t* const lost_a = reinterpret_cast<std::uint32_t*>(pipeline_a.empty + kSlotsA);  // [slot][splitting warp]
  MeetingShare* const shares = reinterpret_cast<MeetingShare*>(lost_a + 8 * kSlotsA);          // [consumer]
  Picked& picked = *reinterpret_cast<Picked*>(shares + 2);

  const auto warp_here = [] {  // each role finds it anew: ptxas spills what it keeps from before the roles part
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return agreed(thread / 32);
  };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    pipeline_b.init(tma ? 1 : kSplitters, tma ? kConsumerWarps : kConsumerWarps * 32);
    pipeline_a.init(kSplitters / 32, kConsumerWarps);
    ptx::fence_barrier_init();
    if (tma) ptx::prefetch_tensor_map(&g.b);
  }
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();
  if constexpr (kPicks)
    if (!pick_tiles<Config>(g, picked)) return;

  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k_size = static_cast<int>(p.k);

  if (warp_here() < kWarps - kConsumerWarps) {
    ptx::release_registers<kHelperRegisters>();
    const int warp = warp_here();
    // B. Block t - kSlotsA + kSlotsB is asked for when A's slot for block t is free: then the consumers are past block t -
    // kSlotsA.
    Walk<Config> walk_b(g, picked);
    PipelineState<kSlotsB> state_b;
    const bool loads = !tma || threadIdx.x == 0;
    auto at_b = walk_b.place();
    const auto load_b = [&] {
      if (!loads || walk_b.done()) return;
      const int k0 = walk_b.block * kBlock;
      unsigned char* const target = slots_b + state_b.slot * kSlotBytesB;
      ptx::Barrier* const landed = pipeline_b.acquire(state_b);
      if (tma) {
        ptx::barrier_arrive_expect(landed, kSlotBytesB);
#pragma unroll
        for (int i = 0; i < (kKMajorB ? 2 : 4); ++i) {
          if constexpr (kKMajorB)
            ptx::tma_load(target + i * 16384, &g.b, landed, k0 + 32 * i, at_b.column, at_b.batch * g.batch_step_b);
          else
            ptx::tma_load(target + i * 8192, &g.b, landed, at_b.column + 32 * i, k0, at_b.batch * g.batch_step_b);
        }
      } else {
        // Panels of rows of 32 elements, laid out as TMA would: [half of k][column], else [32 columns][k].
        constexpr int kPanels = kKMajorB ? 2 : 4, kPanelRows = kKMajorB ? kDirectColumns : kBlock, kWarpStep = kSplitters / 32;
        static_assert(kWarpStep == 8, "a warp's rows are swizzled alike");
        const float* const b = static_cast<const float*>(p.b.data) + batch_offset(p, p.b, at_b.batch);
        const std::int64_t step = kWarpStep * (kKMajorB ? p.b.col_stride : p.b.row_stride);
        unsigned char* to = target + warp * 128 + ((lane / 4) ^ warp) * 16 + lane % 4 * 4;
#pragma unroll 1
        for (int panel = 0; panel < kPanels; ++panel) {
          const int column = at_b.column + (kKMajorB ? warp : panel * 32 + lane), k = k0 + (kKMajorB ? panel * 32 + lane : warp);
          const float* from = b + column * p.b.col_stride + k * p.b.row_stride;
          const int some = (kKMajorB ? k < k_size : column < n) ? (kKMajorB ? n - column : k_size - k) : 0;
#pragma unroll 4
          for (int row = 0; row < kPanelRows; row += kWarpStep) {
            cp_async<4>(to, from, row < some ? 4 : 0);
            from += step, to += kWarpStep * 128;
          }
        }
        ptx::barrier_arrive_copies(landed);
      }
      state_b.advance();
      if (++walk_b.block == walk_b.end) {
        walk_b.next_piece();
        at_b = walk_b.place();
      }
    };
    for (int i = 0; i < kSlotsB - kSlotsA; ++i) load_b();

    // A, in units of 4 rows by 4 of k.
    constexpr int kUnits = Memory::kUnits, kAhead = Memory::kAhead;
    const int splitter = static_cast<int>(threadIdx.x);
    unsigned char* const copies = reinterpret_cast<unsigned char*>(sum_rows) + 2 * Memory::kSumBytes + splitter * 16;
    // Along k a half warp takes a row's 64; along rows a warp takes 16 rows by 32 of k: few bank conflicts either way. Each
    // round is kSplitRows further down.
    const int unit_row = g.a_along_k ? splitter / 16 * 4 : (splitter % 4 + splitter / 64 * 4) * 4;
    const int unit_k = g.a_along_k ? splitter % 16 * 4 : (splitter / 4 % 8 + splitter / 32 % 2 * 8) * 4;
    const int rounds = (kUnits - splitter + kSplitters - 1) / kSplitters;
    const auto copy_of = [&](int stage, int round, int x) {
      return copies + (stage * 4 + x) * kUnits * 16 + round * kSplitters * 16;
    };
    // Four copies of four elements each: `inner` runs along the contiguous dim.
    const std::int64_t inner_stride = g.a_along_k ? p.a.col_stride : p.a.row_stride;
    const std::int64_t outer_stride = g.a_along_k ? p.a.row_stride : p.a.col_stride;
    const float* const nowhere = static_cast<const float*>(p.a.data);
    Walk<Config> ahead(g, picked);
    const float* from = nowhere;
    int rows_left = 0;
    const auto open = [&] {
      const auto at = ahead.place();
      from = nowhere + batch_offset(p, p.a, at.batch) + (at.row + unit_row) * p.a.row_stride +
             (static_cast<std::int64_t>(ahead.block) * kBlock + unit_k) * p.a.col_stride;
      rows_left = m - at.row - unit_row;
    };
    open();
    int left = 0;  // blocks that are copied and not yet split
    const auto copy_block = [&](int stage) {
      if (!ahead.done()) {
        ++left;
        const int depth = k_size - ahead.block * kBlock - unit_k;
#pragma unroll 1
        for (int round = 0; round < rounds; ++round) {
          const int rows = rows_left - round * kSplitRows, inner = g.a_along_k ? depth : rows, outer = g.a_along_k ? rows : depth;
          const float* here = from + round * kSplitRows * p.a.row_stride;
#pragma unroll
          for (int x = 0; x < 4; ++x, here += outer_stride) {
            unsigned char* const to = copy_of(stage, round, x);
            if (g.a_vectors) {
              const bool inside = x < outer && inner > 0;
              cp_async<16>(to, inside ? here : nowhere, inside ? 16 : 0);
            } else {
#pragma unroll
              for (int y = 0; y < 4; ++y) {
                const bool inside = x < outer && y < inner;
                cp_async<4>(to + 4 * y, inside ? here + y * inner_stride : nowhere, inside ? 4 : 0);
              }
            }
          }
        }
        from += kBlock * p.a.col_stride;
        if (++ahead.block == ahead.end) {
          ahead.next_piece();
          if (!ahead.done()) open();
        }
      }
      cp_async_commit();  // an empty group too: the wait counts groups
    };
    // Picks: exponents that lift the rows of the thread's first unit (there is one), a byte each.
    unsigned blocks_split = 0;
    static_assert(!kPicks || kUnits == kSplitters);
    const auto lifts_here = [&]() -> std::uint32_t& {
      return reinterpret_cast<std::uint32_t*>(picked.lifts[warp])[unit_row / 4 % 4];
    };
    const auto find_lifts = [&] {
      const unsigned tile = blocks_split / g.blocks;
      if (blocks_split++ != tile * g.blocks) return;
      const auto at = Walk<Config>::place_of(g, g.list[tile * gridDim.x + blockIdx.x]);
      const LineStats* const stats = stats_a(g, at.batch);
      std::uint32_t lifts = 0;
#pragma unroll
      for (int x = 0; x < 4; ++x)
        lifts |= static_cast<unsigned>(lift_exponent(stats[min(at.row + unit_row + x, m - 1)].max_bits)) << 8 * x;
      __syncwarp();
      if (g.a_along_k ? lane % 16 == 0 : lane < 4) lifts_here() = lifts;
      __syncwarp();
    };
    const auto split_block = [&](int stage, unsigned char* target, auto along_k) {
      std::uint32_t lost = 0;
#pragma unroll 1
      for (int round = 0; round < rounds; ++round) {
        Vector<float, 4> v[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) v[x] = *reinterpret_cast<const Vector<float, 4>*>(copy_of(stage, round, x));
        if (kPicks && picked.lifts_any) {
          const std::uint32_t lifts = lifts_here();
#pragma unroll
          for (int x = 0; x < 4; ++x)
#pragma unroll
            for (int y = 0; y < 4; ++y) (along_k ? v[x][y] : v[y][x]) *= power_of_two(static_cast<int>(lifts >> 8 * x & 255));
        }
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          const auto value = [&](int y) { return along_k ? v[x][y] : v[y][x]; };
          const int row = unit_row + round * kSplitRows + x;
          std::uint32_t first[kParts], second[kParts];
          split_pair(value(0), value(1), first, lost);
          split_pair(value(2), value(3), second, lost);
#pragma unroll
          for (int part = 0; part < kParts; ++part)
            *reinterpret_cast<uint2*>(target + part * Memory::kPartBytes + row * 128 + ((unit_k / 8) ^ (row % 8)) * 16 +
                                      unit_k % 8 * 2) = {first[part], second[part]};
        }
        if constexpr (kPicks) {
          if ((lost & 0xffffu) == 0xffffu) {  // Inf or NaN, which hi carries: is there what no part does?
            lost = 0;
#pragma unroll
            for (int i = 0; i < 16; ++i) lost |= is_extreme_number(v[i / 4][i % 4]);
          }
        }
      }
      return lost;
    };
    for (int stage = 0; stage < kAhead; ++stage) copy_block(stage);
    PipelineState<kSlotsA> state;
    for (int stage = 0; left > 0; state.advance(), stage = stage + 1 == kAhead ? 0 : stage + 1) {
      cp_async_wait<kAhead - 1>();  // this thread's own copies: nobody else reads them
      unsigned char* const target = slots_a + state.slot * Memory::kSlotBytesA;
      ptx::Barrier* const written = pipeline_a.acquire(state);
      load_b();
      if constexpr (kPicks)
        if (picked.lifts_any) find_lifts();
      const std::uint32_t lost =
          g.a_along_k ? split_block(stage, target, std::true_type{}) : split_block(stage, target, std::false_type{});
      ptx::fence_async_shared();
      const bool any = __any_sync(0xffffffffu, (lost & 0xffffu) != 0);
      if (lane == 0) {
        lost_a[state.slot * 8 + warp] = any;
        ptx::barrier_arrive(written);
      }
      --left;
      copy_block(stage);
    }
  } else {
    ptx::acquire_registers<256 - kHelperRegisters>();
    using Layout = ptx::OperandLayout<true, 128, 0>;
    const int consumer = warp_here() / 4 - 2;
    const int barrier = kConsumerBarrier + consumer;
    float* const rows_here = sum_rows + consumer * kLines * kPitch;
    unsigned char* const column_lifts = picked.lifts[kWarps - kConsumerWarps] + consumer * 64;
    const std::uint64_t base_a = Layout::descriptor(ptx::shared_address(slots_a));
    // A thread's place in the fragments, which stands for rows l / 4 and l / 4 + 8 of each warp's 16: the columns of C (lines of
    // B) that it takes for them are chosen so that reads of swizzled shared memory meet no bank conflict.
    struct Lines {
      int lane, warp, quad, first, second;
      __device__ __forceinline__ Lines() {
        unsigned thread;  // read anew, so that no register holds all this through the main loop
        asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
        lane = static_cast<int>(thread) % 32, warp = static_cast<int>(thread) / 32 % 4, quad = lane % 4;
        const int octet = lane / 4;
        first = warp * 16 + (kKMajorB ? octet % 4 * 2 + octet / 4 : 2 * octet), second = first + (kKMajorB ? 8 : 1);
      }
    };

    PipelineState<kSlotsA> state_a;
    PipelineState<kSlotsB> state_b;
    using Fragments = std::uint32_t[kSteps][kParts][4];
    // Of the slot: where the thread's first number lies. Its others are at fixed distances, but for the swizzle. (Found anew,
    // where ptxas has no register for it.)
    const auto find_first = [&] {
      const Lines at;
      const int line = (warp_here() / 4 - 2) * 64 + at.first;
      return static_cast<std::uint32_t>(kKMajorB ? line * 128 + ((at.quad / 2) ^ (line % 8)) * 16 + at.quad % 2 * 8
                                                 : line / 32 * 8192 + 2 * at.quad * 128 + ((line % 32 / 4) ^ (2 * at.quad)) * 16 +
                                                       line % 4 * 4);
    };
    constexpr bool kKeepsFirst = kMirrored || !kShort;
    const std::uint32_t kept_first = kKeepsFirst ? find_first() : 0;
    const auto load_pairs = [](std::uint32_t at, int step, int e, Vector<float, 2>& first, Vector<float, 2>& second) {
      if constexpr (kKMajorB) {
        const std::uint32_t here = (at ^ (step % 2 * 4 + 2 * e) * 16) + step / 2 * 16384;
        first = ptx::load_pair(here);
        second = ptx::load_pair(here + 8 * 128);
      } else {
        const int k = step * 16 + 8 * e;
        const auto x = ptx::load_pair(at + k * 128), y = ptx::load_pair((at ^ 16) + (k + 1) * 128);
        first = {{x[0], y[0]}}, second = {{x[1], y[1]}};
      }
    };
    const auto split_block = [&](Fragments& fragments, auto lifted, float lift_first, float lift_second) {
      const std::uint32_t at = ptx::shared_address(slots_b) + static_cast<unsigned>(state_b.slot * kSlotBytesB) +
                               (kKeepsFirst ? kept_first : find_first());
      std::uint32_t lost = 0;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {  // k 2 quad + 8 e of the step's 16
          Vector<float, 2> first, second;
          load_pairs(at, step, e, first, second);
          if constexpr (lifted()) {
#pragma unroll
            for (int i = 0; i < 2; ++i) first[i] *= lift_first, second[i] *= lift_second;
          }
          std::uint32_t parts[kParts];
          split_pair(first[0], first[1], parts, lost);
#pragma unroll
          for (int part = 0; part < kParts; ++part) fragments[step][part][2 * e] = parts[part];
          split_pair(second[0], second[1], parts, lost);
#pragma unroll
          for (int part = 0; part < kParts; ++part) fragments[step][part][2 * e + 1] = parts[part];
        }
      }
      if constexpr (kPicks) {
        if ((lost & 0xffffu) == 0xffffu) {  // Inf or NaN, which hi carries: is there what no part does?
          lost = 0;
#pragma unroll 1
          for (int i = 0; i < 2 * kSteps; ++i) {
            Vector<float, 2> first, second;
            load_pairs(at, i / 2, i % 2, first, second);
            lost |= is_extreme_number(first[0] * lift_first) || is_extreme_number(first[1] * lift_first) ||
                    is_extreme_number(second[0] * lift_second) || is_extreme_number(second[1] * lift_second);
          }
        }
      }
      return lost;
    };
    const auto pin = [](Fragments& fragments) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
#pragma unroll
        for (int part = 0; part < kParts; ++part) ptx::wgmma_pin(fragments[step][part]);
    };
    // All lanes arrive where threads fill the slot again by cp.async: racecheck does not follow reads through __syncwarp().
    const auto release = [&](ptx::Barrier& barrier, int arriving) {
      __syncwarp();
      if (lane < arriving) ptx::barrier_arrive(&barrier);
    };

    // The warpgroups take turns at the tensor cores: one splits and promotes while the other multiplies.
    if (consumer == 1) ptx::named_barrier_arrive(kTurnBarrier, 256);
    Fragments fragments;
    for (Walk<Config> walk(g, picked); !walk.done(); walk.next_piece()) {
      float total[kSums], small[kSums] = {};  // sums of hi hi; of small products and of what promotion rounds off
      if constexpr (kPicks) {
        if (picked.lifts_any) {
          const Lines lines;
          const auto at = walk.place();
          const LineStats* const stats = stats_b(g, at.batch);
          __syncwarp();
          if (lines.quad == 0) {
#pragma unroll
            for (const int line : {lines.first, lines.second})
              column_lifts[line] =
                  static_cast<unsigned char>(127 + lift_exponent(stats[min(at.column + consumer * 64 + line, n - 1)].max_bits));
          }
          __syncwarp();
        }
      }
#pragma unroll
      for (float& x : total) x = 0;
      std::uint32_t lost = 0;
      const bool last_piece = walk.unit + walk.taken >= walk.last;
      // kHalves: a tile's first block, of which every other step's products of hi hi are summed in `total`.
      const auto add_block = [&](int block, auto kHalves) {
        pipeline_b.wait(state_b);
        if (kPicks && picked.lifts_any) {
          const Lines lines;
          lost |= split_block(fragments, std::bool_constant<kPicks>{}, __int_as_float(column_lifts[lines.first] << 23),
                              __int_as_float(column_lifts[lines.second] << 23));
        } else {
          lost |= split_block(fragments, std::false_type{}, 1.f, 1.f);
        }
        release(pipeline_b.empty[state_b.slot], kMirrored || g.tma ? 1 : 32);
        state_b.advance();
        pipeline_a.wait(state_a);
        ptx::named_barrier_sync(kTurnBarrier + consumer, 256);
        float large[kSums];
        const std::uint64_t slot_a = base_a + static_cast<unsigned>(state_a.slot * (Memory::kSlotBytesA / 16));
        pin(fragments);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {  // all that takes one part of A together: fewer descriptors are alive
          const auto multiply = [&](auto& sums, int part_b, int part_a, bool adds) {
            ptx::WgmmaRegisters<bf16>::mma(sums, fragments[step][part_b],
                                           slot_a + (part_a * Memory::kPartBytes + step * Layout::kStepBytes) / 16, adds);
          };
          multiply(small, 0, 2, true);
          multiply(small, 1, 1, true);
          multiply(small, 0, 1, true);
          multiply(small, 2, 0, true);
          multiply(small, 1, 0, true);
          if constexpr (!kHalves())
            multiply(large, 0, 0, step > 0);
          else if (step % 2 == 0)
            multiply(total, 0, 0, step > 0);
          else
            multiply(large, 0, 0, step > 1);
        }
        ptx::wgmma_commit();
        if (consumer == 0 || block + 1 < walk.end || !last_piece) ptx::named_barrier_arrive(kTurnBarrier + 1 - consumer, 256);
        if (lane == 0) {  // who frees the slot afterwards
#pragma unroll
          for (int i = 0; i < kSplitters / 32; ++i) lost |= lost_a[state_a.slot * 8 + i];
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(small);
        ptx::wgmma_pin(large);
        if constexpr (kHalves()) ptx::wgmma_pin(total);
        pin(fragments);  // alive until here: the tensor cores read them
        release(pipeline_a.empty[state_a.slot], 1);
        state_a.advance();
        // Fast2Sum: what is rounded off is exact, but where the block's sum is far larger than all before it.
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          const float sum = total[i] + large[i];
          float off;
          if constexpr (kHalves()) {  // two steps each; either may be the larger (Compensated::of, but by operators: else it
                                      // spills)
            const float of_large = sum - total[i];
            off = (total[i] - (sum - of_large)) + (large[i] - of_large);
            if (__float_as_uint(large[i]) & kTruncatedBits) off = fmaf(large[i], kTruncated / 2, off);
            if (__float_as_uint(total[i]) & kTruncatedBits) off = fmaf(total[i], kTruncated / 2, off);
          } else {
            off = large[i] - (sum - total[i]);
            if (__float_as_uint(large[i]) & kTruncatedBits) off = fmaf(large[i], kTruncated, off);
          }
          small[i] += off;
          total[i] = sum;
        }
        if (!kShort && static_cast<unsigned>(block) % kFlush == kFlush - 1) {
#pragma unroll
          for (int i = 0; i < kSums; ++i) {
            const float more = number(small[i]), sum = total[i] + more;
            small[i] = more - (sum - total[i]);
            total[i] = sum;
          }
        }
      };
      if constexpr (kShort) {
        add_block(0, std::true_type{});
        if (walk.end > 1) add_block(1, std::false_type{});
      } else {
        for (int block = walk.block; block < walk.end; ++block) add_block(block, std::false_type{});
      }
#pragma unroll
      for (int i = 0; i < kSums; ++i) total[i] += number(small[i]);

      // A sum beyond fp32's range may be one only because hi was rounded up.
      float finite = 0;
#pragma unroll
      for (const float x : total) finite = fmaf(x, 0.f, finite);
      const Lines lines;
      const auto at = walk.place();
      const int rows = min(kRows, m - at.row), column0 = at.column + consumer * 64, columns = min(64, n - column0);
      if (isnan(finite)) {
        if constexpr (kPicks) {  // Inf and NaN that the lines have are as they should be
          const LineStats *const of_a = stats_a(g, at.batch) + at.row, *const of_b = stats_b(g, at.batch);
          const bool special[2] = {of_b[min(column0 + lines.first, n - 1)].max_bits >= kInfinityBits,
                                   of_b[min(column0 + lines.second, n - 1)].max_bits >= kInfinityBits};
#pragma unroll
          for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const bool row_special = of_a[min(8 * j + 2 * lines.quad + c, rows - 1)].max_bits >= kInfinityBits;
#pragma unroll
              for (int h = 0; h < 2; ++h)
                if (!row_special && !special[h] && !(fabsf(total[4 * j + 2 * h + c]) < INFINITY)) lost = 1;
            }
        } else {
          lost = 1;
        }
      }
      if constexpr (kPicks) {
        if (picked.lifts_any) {
          const LineStats* const stats = stats_a(g, at.batch) + at.row;
          const int low[2] = {column_lifts[lines.first], column_lifts[lines.second]};
#pragma unroll
          for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              const int lift = lift_exponent(stats[min(8 * j + 2 * lines.quad + c, rows - 1)].max_bits) - 127;
#pragma unroll
              for (int h = 0; h < 2; ++h) total[4 * j + 2 * h + c] = unscale(total[4 * j + 2 * h + c], -(lift + low[h]));
            }
        }
      }
      if (ptx::named_barrier_or(barrier, 128, (lost & 0xffffu) != 0)) {
        const float *const a = static_cast<const float*>(p.a.data) + batch_offset(p, p.a, at.batch) + at.row * p.a.row_stride,
                           *const b =
                               static_cast<const float*>(p.b.data) + batch_offset(p, p.b, at.batch) + column0 * p.b.col_stride;
        const std::int64_t begin = static_cast<std::int64_t>(walk.block) * kBlock,
                           end = min(p.k, static_cast<std::int64_t>(walk.end) * kBlock);
        // Lifted sums may have left the range that the lines' own would not have.
        if ((kPicks && picked.lifts_any) || beyond_parts(a, rows, p.a.row_stride, p.a.col_stride, b, columns, p.b.col_stride,
                                                         p.b.row_stride, begin, end, barrier, reinterpret_cast<int*>(rows_here)))
          exact_piece<Config>(total, g, a, b, rows, columns, begin, end, rows_here, barrier, lines.first, lines.second);
      }
      const float alpha = static_cast<float>(p.alpha);
      // The thread's quads of C: a line is a row of C, and so many columns lie in it.
      constexpr int kLanes = kAlong / 4, kStep = 128 / kLanes;
      const int along = lines.lane % kLanes * 4, line_first = lines.warp * (32 / kLanes) + lines.lane / kLanes;
      const int out_columns = kMirrored ? m : n;
      const int out_row0 = kMirrored ? column0 : at.row, out_column0 = kMirrored ? at.row : column0;
      float* const out = static_cast<float*>(p.out) +
                         (static_cast<std::int64_t>(at.batch) * (kMirrored ? n : m) + out_row0) * out_columns + out_column0;
      // A product with nothing fused has a path of its own: the other one's code would push the main loop out of the instruction
      // cache.
      const auto store = [&](int row, int column, const Vector<float, 4>& sum) {
        Quad<float> results{{sum[0], sum[1], sum[2], sum[3]}};
        const int count = (kMirrored ? rows : columns) - column;
        if (g.plain) {
#pragma unroll
          for (float& x : results.v) x = fmaf(alpha, x, 0.f);
        } else {
          results =
              make_epilogue<float, float>(p, at.batch).template quad<float>(results, out_row0 + row, out_column0 + column, count);
        }
        float* const to = out + static_cast<std::int64_t>(row) * out_columns + column;
        if constexpr (kPicks) {
          if (!picked.all) {
            const LineQuality of_row = line_quality(stats_a(g, at.batch)[out_row0 + row], p.k);
            const LineStats* const columns_here = stats_b(g, at.batch) + out_column0 + column;
#pragma unroll
            for (int j = 0; j < 4; ++j)
              if (j < count && !pairs_well(of_row, line_quality(columns_here[j], p.k))) to[j] = results.v[j];
            return;
          }
        }
        simt::store_global(to, results, count, out_columns);
      };
      // A shared tile is the last piece of its first CTA and the first piece of the others.
      unsigned cta0 = 0, cta1 = 0;
      if (!walk.whole()) {
        const unsigned tile_unit = walk.unit / g.units * g.units;
        cta0 = walk.owner(tile_unit), cta1 = walk.owner(tile_unit + g.units - 1);
      }
      // Sums of a piece: kSumRows rows after kSumRows rows, each as it lay in shared memory.
      const auto partial = [&](unsigned cta, int line) {
        return g.partials + static_cast<std::size_t>((2 * cta + (cta == cta0)) * 2 + consumer) * (kRows * 64) + line * kAlong +
               along;
      };
      if constexpr (kMirrored) {
        // Four lanes hold 32 bytes of a row: nothing is gained by shared memory.
        if (g.plain && walk.whole() && m % 2 == 0) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int line = h ? lines.second : lines.first;
            float* const to = out + static_cast<std::int64_t>(line) * m + 2 * lines.quad;
#pragma unroll
            for (int j = 0; j < kRows / 8; ++j)
              if (line < columns && 8 * j + 2 * lines.quad < rows)
                store_vector(to + 8 * j, Vector<float, 2>{{fmaf(alpha, total[4 * j + 2 * h], 0.f),
                                                           fmaf(alpha, total[4 * j + 2 * h + 1], 0.f)}});
          }
          continue;
        }
      }
#pragma unroll
      for (int row0 = 0; row0 < kRows; row0 += kSumRows) {
        if (row0 >= rows) break;
#pragma unroll
        for (int j = 0; j < kSumRows / 8; ++j) {
          const float* const x = total + row0 / 2 + 4 * j;  // columns first and second of rows 8 j + 2 quad and the next
          if constexpr (kMirrored) {
            store_vector(rows_here + lines.first * kPitch + 8 * j + 2 * lines.quad, Vector<float, 2>{{x[0], x[1]}});
            store_vector(rows_here + lines.second * kPitch + 8 * j + 2 * lines.quad, Vector<float, 2>{{x[2], x[3]}});
          } else {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              float* const row = rows_here + (8 * j + 2 * lines.quad + c) * kPitch;
              if constexpr (kKMajorB) {
                row[lines.first] = x[c];
                row[lines.second] = x[2 + c];
              } else {
                store_vector(row + lines.first, Vector<float, 2>{{x[c], x[2 + c]}});
              }
            }
          }
        }
        ptx::named_barrier_sync(barrier, 128);
        if (along < (kMirrored ? rows - row0 : columns)) {
#pragma unroll 1
          for (int line = line_first; line < (kMirrored ? columns : min(kSumRows, rows - row0)); line += kStep) {
            const float* const from = rows_here + line * kPitch + along;
            Vector<float, 4> sum;
            if constexpr (kMirrored) {  // a pitch of 36 would take a slot of B
              const auto low = load_vector<2>(from), high = load_vector<2>(from + 2);
              sum = {{low[0], low[1], high[0], high[1]}};
            } else {
              sum = load_vector<4>(from);
            }
            if (!walk.whole())
              store_vector(partial(blockIdx.x, row0 * 64 / kAlong + line), sum);
            else if constexpr (kMirrored)
              store(line, row0 + along, sum);
            else
              store(row0 + line, along, sum);
          }
        }
        ptx::named_barrier_sync(barrier, 128);
      }
      if (!Walk<Config>::kWhole && !walk.whole()) {
        // Few pieces: the last to come adds them, a row each half warp. Of many, all CTAs add, a row each at a time: a half warp
        // adds an eighth of the pieces, then one adds the eighths in order. Who has another piece does not stay: then nobody
        // waits for a CTA that waits itself.
        const int pieces = static_cast<int>(cta1 - cta0) + 1,
                  eighth = !kMirrored && pieces > kDirectFewPieces ? (pieces + 7) / 8 : 0;
        if (threadIdx.x % 128 == 0)
          shares[consumer] =
              meet(g.meetings[2 * cta0 + consumer], cta1 - cta0 + 1, eighth && walk.unit + walk.taken >= walk.last);
        ptx::named_barrier_sync(barrier, 128);
        const int of = static_cast<int>(shares[consumer].of), rank = static_cast<int>(shares[consumer].rank);
        if (of > 0) {
#pragma unroll 1
          for (int line = eighth ? rank : line_first; line < (kMirrored ? kRows * 64 / kAlong : rows);
               line += eighth ? of : kStep) {
            if (kMirrored && (line % 64 >= columns || line / 64 * kSumRows + along >= rows)) continue;
            const unsigned from = cta0 + static_cast<unsigned>(eighth ? line_first * eighth : 0);
            const unsigned to = eighth ? min(cta1, from + static_cast<unsigned>(eighth) - 1) : cta1;
            Vector<float, 4> sum{};
#pragma unroll 1
            for (unsigned cta = from; cta <= to && (kMirrored || along < columns); cta += 4) {
              float4 parts[4];  // asked for together
#pragma unroll
              for (unsigned i = 0; i < 4; ++i)
                parts[i] = __ldcg(reinterpret_cast<const float4*>(partial(min(cta + i, to), line)));
#pragma unroll
              for (unsigned i = 0; i < 4; ++i) {
                if (cta + i > to) break;
                const Vector<float, 4> v{{parts[i].x, parts[i].y, parts[i].z, parts[i].w}};
#pragma unroll
                for (int j = 0; j < 4; ++j) sum[j] = cta + i == from ? v[j] : sum[j] + v[j];
              }
            }
            if (eighth) {
              __syncwarp();
              ptx::named_barrier_sync(barrier, 128);
              store_vector(rows_here + line_first * kPitch + along, sum);
              ptx::named_barrier_sync(barrier, 128);
              if (line_first == 0) {
                for (int i = 1; i < 8; ++i) {
                  const auto more = load_vector<4>(rows_here + i * kPitch + along);
#pragma unroll
                  for (int j = 0; j < 4; ++j) sum[j] += more[j];
                }
              }
              __syncwarp();
            }
            if constexpr (kMirrored) {
              store(line % 64, line / 64 * kSumRows + along, sum);
            } else {
              if (along < columns && (!eighth || line_first == 0)) store(line, along, sum);
            }
            if (eighth) __syncwarp();
          }
        }
        if (threadIdx.x % 128 == 0) depart(g.meetings[2 * cta0 + consumer], cta1 - cta0 + 1);
      }
    }
  }
#endif
}

}  // namespace xgemm::matmul
