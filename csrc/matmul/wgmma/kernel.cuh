// Matrix product on Hopper's tensor cores (sm_90a): half-precision operands, and fp32 operands that fp16_split/split.cuh has
// turned into one or two scaled fp16 parts. One persistent, warp-specialised kernel; out = epilogue(A B) as epilogue/apply.cuh
// says.
//
//   Work      A CTA owns tile_m x tile_n of C at a time and walks its share of the tiles in an order that keeps the operands of
//             the tiles in flight in L2. Warpgroup 0 only loads (TMA), the others multiply 64 rows each (wgmma m64 x tile_n).
//   Pipeline  `stages` slots of shared memory. full[s] completes when a slot's bytes have landed, empty[s] when every consumer
//             warp is done with it. The pipeline runs across tiles: the next tile's loads start during the epilogue, and C leaves
//             through shared memory by TMA while the next tile is multiplied (epilogue/wgmma.cuh).
//   Start     Each role waits for the launch before as it is about to touch memory; the first tile is found by then.
//   Operands  Row- or column-major each. Base and strides multiples of 16 bytes (TMA). Edges of any size: TMA reads zeros
//             outside. Batches are the tensor maps' third dim (broadcast: step 0). Of a problem with few rows only those are
//             loaded.
//   Parts     parts = 2: A = (hi, lo), B = (hi, lo); lo*hi, hi*lo, then hi*hi go into one accumulator, small terms first, because
//             the tensor core rounds toward zero at each step; lo*lo is dropped. After each k-block the accumulator is promoted:
//             added to fp32 registers, rounded to nearest, times 1 + 2^-23, which is what truncation has taken off on average
//             (0.9 of it for sums of one sign, 0.5 for random signs: four hi*hi steps, each losing half an ulp of what is there
//             by then). Promoted sums run over `chunk_blocks` k-blocks from zero; the chunks' sums are added in order.
//   Scales    The producer's three idle warps bring the factors that take the lines' scales out of a tile to shared memory while
//             it is multiplied (scales_full and scales_empty hand them over); gated tiles and merged splits read the lines
//             themselves. Half precision's bias comes the same way.
//   Splits    K is cut in `splits` parts, each summed from zero, and the parts' sums are added in order: by one CTA that does all
//             parts of a tile; by a cluster of one CTA a part (up to 8: each CTA sends columns of its sums to the CTA that
//             owns them, through distributed shared memory; the owner adds and stores); or, spread, each part is an item of work
//             like a tile, its sums go to memory, and the tile's CTAs meet there to add and store a share of it each
//             (meeting.cuh).
//   Pairs     Tiles one below the other need the same B, side by side the same A: the CTAs of a cluster of two, one tile each,
//             bring half of its boxes to both (multicast). A slot is free when the consumers of both have arrived at the producer
//             of each. The second tile of the last pair may be outside: nothing of it is stored.
//   Edges     A K-major operand's last tiles begin earlier and overlap the ones before rather than end outside the matrix: TMA
//             takes longer for lines outside than for lines inside. What is computed twice has the same bits.
//   Loaders   of a 64-row tile are two warps, slot by slot in turn: a warp takes 400 cycles to fill a slot, which is more than a
//             small tile's products take. A third asks L2 for the first kilobyte of each line of a weight that few rows meet,
//             before the launch before has ended.
//   Columns   of a tile may be fewer than tile_n where B is K-major: only those are loaded, so that few rows by any number of
//             columns fill all multiprocessors evenly.
//   Mirrored  The problem is C^T's: B's lines are rows of C, of which a tile has as many as suit the problem. A main loop for
//             each n of kWgmmaWidths, slots as wide as n, and an epilogue that turns the tile round.
//   Gated     Half of a tile's columns are one weight's (b), half the other's (up), both K-major: a thread's accumulators hold
//             both sums of an element, and the epilogue makes one result of them. C's tiles are tile_n / 2 wide.
//   Failed    Of two parts, a product with an operand whose lines all failed is left out: bf16x3/kernel.cuh does it.
//   Order     An element's products are added in an order that depends on K, tile_k, parts, chunk_blocks and splits alone: the
//             tile and the place in it do not change its bits.
//
// Floors: 2 M N K parts' products (1 or 3) over 4096 flop a cycle and SM; per k-block and CTA, shared memory takes the slot's
// bytes from TMA and gives 64 tile_k (A) + tile_n tile_k (B) elements to each consumer's product, at 128 bytes a cycle. Few rows:
// B's bytes.
#pragma once
#include <iterator>
#include <type_traits>

#include "device/arguments.cuh"
#include "device/index_map.h"
#include "device/pipeline.cuh"
#include "device/ptx/cluster.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/shared_memory.cuh"
#include "device/warp.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/simt/launch.h"
#include "matmul/wgmma/meeting.cuh"
#include "matmul/wgmma/plan.h"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct WgmmaConfig {
  int tile_m;             ///< rows of C a CTA: 64 or 128, one consumer warpgroup each 64
  int tile_n;             ///< columns of C a CTA: 32 or 96 (K-major B only), 64, 128, 192 or 256
  int blocks;             ///< k-blocks a slot
  int stages;             ///< slots
  bool k_major_a;         ///< A row-major
  bool k_major_b;         ///< B column-major
  int group;              ///< rows of tiles walked together before the next column of tiles
  int parts = 1;          ///< 2: operands are hi and lo
  bool scaled = false;    ///< operands' lines were scaled by powers of two (line_scale.cuh)
  bool gated = false;     ///< K-major b and up side by side
  bool mirrored = false;  ///< the problem is that of C^T (problem.h); K-major B, of which a tile may have any number of lines
  constexpr int most_stages() const { return mirrored ? 2 * stages : stages; }  ///< tiles of fewer lines have more slots
  constexpr int consumers() const { return tile_m / 64; }
  constexpr int columns() const { return gated ? tile_n / 2 : tile_n; }  ///< of C
  constexpr bool shares_scales() const { return scaled && !gated; }      ///< the producer's idle warps bring the lines' scales
  constexpr bool shares_bias() const { return !scaled && !gated; }       ///< or the bias
  constexpr bool may_split() const {
    return tile_n <= 128 && !gated;
  }  ///< wider ones have no registers to spare for sums of parts
  constexpr bool may_spread() const { return may_pair() && !mirrored; }
  constexpr bool may_straight() const { return may_spread() && tile_m == 64; }
  constexpr bool may_pair() const { return !scaled && !gated; }
  constexpr int loaders() const { return may_pair() && tile_m == 64 ? 2 : 1; }  ///< warps of warpgroup 0 that load
  constexpr int fillers() const { return 128 - 32 * loaders(); }                ///< its other threads
  constexpr bool pairs_share_a() const { return shares_a(tile_m, tile_n); }
  constexpr bool may_fail() const { return parts == 2 && !gated; }
  constexpr int threads() const { return 128 * (1 + consumers()); }
};

struct WgmmaArguments {
  CUtensorMap a, b;                ///< dims (contiguous, other, batch * parts); boxes as WgmmaBoxes says
  CUtensorMap out;                 ///< dims (n, m, batch); boxes of 128 bytes by 16 rows
  Problem problem;                 ///< sizes and the epilogue's operands; its a and b are not read
  int batch_step_a, batch_step_b;  ///< 0: the operand is one matrix for all batches
  int rows, columns, tiles;        ///< tiles of C: of a batch, and in all
  int shared;  ///< CTAs pair, one's tile below the other's (rows counts pairs), or beside it where Config::pairs_share_a()
               ///< (columns does): lines (MN-major: k) of the shared operand's boxes that each brings to both; else 0
  int last_row, last_column;                                ///< where a tile begins at most (see Edges)
  int tile_columns;                                         ///< of C: Config's columns(), or fewer
  int width;                                                ///< mirrored: n of the wgmmas
  int stages, stage_bytes;                                  ///< mirrored: slots
  int slot_bytes;                                           ///< what TMA brings to one slot
  int blocks, chunk_blocks, split_blocks, splits, cluster;  ///< blocks: of K
  /// A batch's tiles, those of a whole group of rows, the rows of the last group, and tiles (pairs of them, parts) at a time.
  ShortDivider per_batch, per_group, last_rows, at_a_time;
  int items, shift;  ///< tiles, or parts of them, in all; CTAs that share one or pair, as a power of two
  float alpha;
  int spread;                          ///< parts of a tile that are items of their own: `splits` or 1
  Meeting* meetings;                   ///< spread: one a tile
  float* partials;                     ///< spread: [item][tile_m][tile_n]
  bool straight;                       ///< C leaves from registers, pairs of columns: tiles of other widths than `out`'s boxes
  const char* b_lines;                 ///< K-major b
  std::int64_t b_step;                 ///< bytes from line to line
  int ahead;                           ///< bytes of a line that ask_ahead asks for; 0: not called
  const LineStats *lines_a, *lines_b;  ///< scaled: [batch or one][line]
  FailedProduct failed;                ///< Config::may_fail()
  bool shares_bias;                    ///< boxes and a bias, where Config::shares_bias()
  bool boxes;   ///< C leaves through `out`: rows start at multiples of 16 bytes; epilogue: epilogue/wgmma.cuh
  bool ragged;  ///< boxes, but of rows that start anywhere; half precision
  // Gated: the other weight; biases and activation are here and not in `problem`, whose epilogue gets the results.
  CUtensorMap up;
  const LineStats* lines_up;
  Operand bias_gate, bias_up;
  Activation activation;
};

/// Calls run(std::integral_constant<int, width>{}), `width` one of kWgmmaWidths.
template <std::size_t kFrom = 0, class Run>
__device__ __forceinline__ void for_width(int width, const Run& run) {
  constexpr int kWidth = kWgmmaWidths[kFrom];
  if constexpr (kFrom + 1 == std::size(kWgmmaWidths)) {
    run(std::integral_constant<int, kWidth>{});
  } else if (width == kWidth) {
    run(std::integral_constant<int, kWidth>{});
  } else {
    for_width<kFrom + 1>(width, run);
  }
}

/// The boxes that the kernel's loads move, which the host writes in the tensor maps; a K-major A may have fewer rows.
template <class Config>
struct WgmmaBoxes {
  static constexpr WgmmaConfig kConfig = Config::kValue;
  static constexpr int kRowBytes = 128;
  static constexpr int kBoxA[2] = {64, kConfig.k_major_a ? kConfig.tile_m : kConfig.blocks* kWgmmaTileK};
  static constexpr int kBoxB[2] = {64, kConfig.k_major_b ? kConfig.columns() : kConfig.blocks* kWgmmaTileK};
  static constexpr int kBytesA = kConfig.tile_m * kRowBytes;  // of a k-block
  static constexpr int kBytesB = kConfig.tile_n * kRowBytes;
  static constexpr int kStageBytes = kConfig.blocks * kConfig.parts * (kBytesA + kBytesB);
  static constexpr int kSlotsBytes = kConfig.mirrored ? 208 * 1024 : kConfig.stages * kStageBytes;
  static constexpr int kStagingBytes = kConfig.mirrored && kConfig.tile_m == 128 ? 2048 : 4096;  // of each consumer warp
  static constexpr int kBoxC = kConfig.columns() % 64 == 0 ? 128 : 64;                           // bytes of a row of a box of C
  static constexpr int kConsumerWarps = 4 * kConfig.consumers();
  /// The tile's rows' and columns' scales as biased exponents, and whether all are moderate (fill_scales); or its bias.
  static constexpr int kScaleBytes = kConfig.shares_scales() ? 4 * (kConfig.tile_m + kConfig.tile_n + 4)
                                     : kConfig.shares_bias() ? 4 * (kConfig.mirrored ? kConfig.tile_m : kConfig.tile_n)
                                                             : 0;
  static constexpr int kSharedBytes = kSlotsBytes + kConsumerWarps * kStagingBytes + kScaleBytes +
                                      Pipeline<kConfig.most_stages()>::kBytes + 5 * 8 + kSwizzlePattern;
  // Splits' sums meet in the slots.
  static_assert(!kConfig.may_split() ||
                (kConfig.tile_n / 8 + kMaxCluster - 1) * 32 * kConfig.tile_m <= kConfig.stages * kStageBytes);
  static_assert(kSharedBytes <= 227 * 1024 && kStageBytes % 1024 == 0);
  static_assert(!kConfig.gated || (kConfig.k_major_a && kConfig.k_major_b && kConfig.columns() * kRowBytes % 1024 == 0));
};

namespace wgmma_detail {
/// Consumers alone. kStoreBarrier: one a warpgroup.
enum NamedBarrier : int { kStaggerBarrier = 1, kMeetBarrier, kStoreBarrier };
}  // namespace wgmma_detail

}  // namespace xgemm::matmul

#include "matmul/epilogue/wgmma.cuh"

namespace xgemm::matmul {
namespace wgmma_detail {

struct Tile {
  int row, column, batch;  ///< first row and column of C
};

/// Tile `index` in the order in which they are handed out: column by column inside groups of `group` rows. `rank`: this CTA's of
/// a pair.
template <class Config>
__device__ __forceinline__ Tile locate(const WgmmaArguments& g, int index, int rank = 0) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  const int batch = g.per_batch.divide(index), within = index - batch * static_cast<int>(g.per_batch.divisor);
  const int group = g.per_group.divide(within), in_group = within - group * static_cast<int>(g.per_group.divisor);
  const bool whole = (group + 1) * kConfig.group <= g.rows;
  const int height = whole ? kConfig.group : static_cast<int>(g.last_rows.divisor);
  int column = whole ? in_group / kConfig.group : g.last_rows.divide(in_group);
  int row = group * kConfig.group + (in_group - column * height);
  if (kConfig.may_pair() && g.shared)
    (kConfig.pairs_share_a() ? column : row) = 2 * (kConfig.pairs_share_a() ? column : row) + rank;
  return {min(row * kConfig.tile_m, g.last_row), min(column * g.tile_columns, g.last_column), batch};
}

/// What a CTA does at a time: blocks [begin, end) of a tile.
struct Item {
  int tile, split, begin, end;
};
template <class Config>
__device__ __forceinline__ Item item_at(const WgmmaArguments& g, int index, int rank, int blocks) {
  Item item{index, rank, 0, blocks};
  if (Config::kValue.may_spread() && g.spread > 1) {
    item.tile = index / g.spread;
    item.split = index - item.tile * g.spread;
  }
  if (item.split >= 0) {
    item.begin = min(blocks, item.split * g.split_blocks);
    item.end = min(blocks, item.begin + g.split_blocks);
  } else {
    item.split = 0;
  }
  return item;
}

/// By a warp: asks L2 for the beginning of the lines of b that this CTA reads first. Nothing is seen of them yet, so that it need
/// not wait for the launch before.
__device__ __forceinline__ void ask_ahead(const WgmmaArguments& g, const Item& item, const Tile& tile) {
  const int begin = item.begin * kWgmmaTileK, bytes = min(g.ahead, 2 * (static_cast<int>(g.problem.k) - begin)) & ~15;
  const int lines = min(g.tile_columns, static_cast<int>(g.problem.n) - tile.column);
  if (bytes <= 0) return;
  for (int line = static_cast<int>(threadIdx.x) % 32; line < lines; line += 32)
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(g.b_lines + (tile.column + line) * g.b_step + 2 * begin),
                 "r"(bytes)
                 : "memory");
}

/// Is the product left out?
__device__ __forceinline__ bool product_failed(const WgmmaArguments& g) {
  if (!g.failed.lines) return false;
  const uint2 lines = __ldcg(reinterpret_cast<const uint2*>(g.failed.lines));
  return lines.x == g.failed.lines_a || lines.y == g.failed.lines_b;  // of_a, of_b
}

}  // namespace wgmma_detail

template <class Element, class Out, class Config>
__global__ void __launch_bounds__(Config::kValue.threads(), 1) wgmma_gemm(const __grid_constant__ WgmmaArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr WgmmaConfig kConfig = Config::kValue;
  using Boxes = WgmmaBoxes<Config>;
  constexpr int kTileM = kConfig.tile_m, kTileN = kConfig.tile_n, kStages = kConfig.most_stages(), kParts = kConfig.parts;
  constexpr int kAccumulators = kTileN / 2, kConsumerWarps = Boxes::kConsumerWarps, kConsumerThreads = 32 * kConsumerWarps;
  constexpr int kRowBytes = Boxes::kRowBytes;
  constexpr int kPieceBytes = kConfig.blocks * kWgmmaTileK * 128;  // of 64 lines of an MN-major operand

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots = shared_memory + swizzle_padding(shared_memory);
  unsigned char* const staging = slots + Boxes::kSlotsBytes;
  int* const scales = reinterpret_cast<int*>(staging + kConsumerWarps * Boxes::kStagingBytes);
  const Pipeline<kStages> pipeline{
      reinterpret_cast<ptx::Barrier*>(reinterpret_cast<unsigned char*>(scales) + Boxes::kScaleBytes)};
  ptx::Barrier* const merged = pipeline.empty + kStages;  // the slots, which held a cluster's sums, may be loaded again
  ptx::Barrier* const scales_full = merged + 1;           // the tile's scales are there
  ptx::Barrier* const scales_empty = merged + 2;          // every consumer warp has read them
  ptx::Barrier* const arrived = merged + 3;               // the cluster's sums of this CTA's columns are there
  MeetingShare* const share = reinterpret_cast<MeetingShare*>(merged + 4);
  const int cluster = kConfig.may_split() ? g.cluster : 1;
  const bool paired = kConfig.may_pair() && g.shared != 0;
  const int stages = kConfig.mirrored ? g.stages : kStages, stage_bytes = kConfig.mirrored ? g.stage_bytes : Boxes::kStageBytes;

  const int warpgroup = agreed(static_cast<int>(threadIdx.x) / 128);
  // What comes first is on every launch's bill, and a lone warp's instructions take five cycles each: a warp for the barriers,
  // one for the tensor maps.
  if (threadIdx.x == 32) {
    pipeline.init(1, paired ? 2 * kConsumerWarps : kConsumerWarps);
    ptx::barrier_init(merged, kConsumerWarps);
    ptx::barrier_init(arrived, 1);
    if constexpr (!kConfig.gated) {
      ptx::barrier_init(scales_full, kConfig.fillers());
      ptx::barrier_init(scales_empty, kConsumerWarps);
    }
    ptx::fence_barrier_init();
  }
  if (threadIdx.x == 64) {
    ptx::prefetch_tensor_map(&g.a);
    ptx::prefetch_tensor_map(&g.b);
    if constexpr (kConfig.gated) ptx::prefetch_tensor_map(&g.up);
    if (g.boxes && !g.ragged) ptx::prefetch_tensor_map(&g.out);
    if (kConfig.may_fail() && g.failed.lines) asm volatile("prefetch.global.L2 [%0];" ::"l"(g.failed.lines));
  }
  __syncthreads();
  ptx::grid_release();
  if constexpr (kConfig.may_fail()) {
    ptx::grid_wait();
    if (wgmma_detail::product_failed(g)) return;
  }
  const bool clustered = cluster > 1 || paired;
  if (clustered) ptx::cluster_arrive_thread();  // before anything that takes a warp time: all wait for all
  // Each warp once, before it touches memory: the producer has found its first tile by then.
  const auto start = [&] {
    ptx::grid_wait();
    if (clustered) ptx::cluster_wait_thread();  // every CTA runs, so its shared memory is there
  };

  // Of `blocks` k-blocks, this CTA does [begin, end): all of them, or its split's.
  const int blocks = g.blocks;
  const int rank = cluster == 1 ? -1 : static_cast<int>(ptx::cluster_rank());
  const auto first_item = [&] {  // each role finds it anew: ptxas spills what it keeps from before the roles part
    int cta;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(cta));
    return cta >> g.shift;
  };
  const auto pair_rank = [&] { return paired ? static_cast<int>(ptx::cluster_rank()) : 0; };
  const int item_step = static_cast<int>(g.at_a_time.divisor);

  if (warpgroup == 0) {
    if constexpr (kConfig.consumers() == 2) ptx::release_registers<24>();
    const int warp = agreed(static_cast<int>(threadIdx.x) / 32);
    const bool loads = warp < kConfig.loaders();
    int turns = warp;  // of other loaders, before this one's
    const bool leads = ptx::elect_one();
    PipelineState<kStages> state;
    unsigned merges = 0;
    if (!loads) {
      if constexpr (kConfig.may_straight() && kConfig.k_major_b) {
        if (warp == 3 && g.ahead > 0) {
          const auto item = wgmma_detail::item_at<Config>(g, first_item(), rank, blocks);
          wgmma_detail::ask_ahead(g, item, wgmma_detail::locate<Config>(g, item.tile, pair_rank()));
        }
      }
      start();
      fetch_arguments(g);
    }
    bool walks = true;  // over the items: not the warps that bring scales
    if constexpr (!kConfig.gated) {
      if (!loads && (kConfig.shares_scales() ? cluster == 1 : g.shares_bias)) {
        unsigned parity = 1;
        for (int index = first_item(); index < g.items; index += item_step, parity ^= 1) {
          ptx::barrier_wait(scales_empty, parity);
          const auto tile = wgmma_detail::locate<Config>(g, index, pair_rank());
          const int thread = static_cast<int>(threadIdx.x) - 32 * kConfig.loaders();
          if constexpr (kConfig.shares_scales())
            wgmma_detail::fill_scales<Config>(g, tile.row, tile.column, tile.batch, thread, scales);
          else
            wgmma_detail::fill_bias<Out, Config>(g, kConfig.mirrored ? tile.row : tile.column, thread, scales);
          ptx::barrier_arrive(scales_full);
        }
        walks = false;  // boxes: no merges
      }
    }
    for (int index = walks ? first_item() : g.items; index < g.items; index += item_step) {
      if (loads) {
        if (cluster > 1 && merges++ > 0) ptx::barrier_wait(merged, merges & 1);
        const auto item = wgmma_detail::item_at<Config>(g, index, rank, blocks);
        const int pair = agreed(pair_rank());
        const auto tile = wgmma_detail::locate<Config>(g, item.tile, pair);
        // A pair's CTA brings its half of the lines of a shared operand's boxes to both.
        constexpr bool kMayShareA = kConfig.may_pair() && kConfig.pairs_share_a(), kMayShareB = kConfig.may_pair() && !kMayShareA;
        const int shift_a = kMayShareA ? pair * g.shared : 0, shift_b = kMayShareB ? pair * g.shared : 0;
        const auto load = [&](bool share, unsigned char* to, const CUtensorMap& map, ptx::Barrier* landed, int c0, int c1,
                              int c2) {
          if (share)
            ptx::tma_load_multicast(to, &map, landed, c0, c1, c2, 3);
          else
            ptx::tma_load(to, &map, landed, c0, c1, c2);
        };
        const int begin = agreed(item.begin), end = agreed(item.end), row = agreed(tile.row), column = agreed(tile.column);
        const int batch_a = agreed(tile.batch * g.batch_step_a * kParts), batch_b = agreed(tile.batch * g.batch_step_b * kParts);
        if (index == first_item()) start();
        for (int block = begin; block < end; block += kConfig.blocks, state.advance(stages)) {
          if constexpr (kConfig.loaders() > 1) {
            if (--turns >= 0) continue;
            turns = kConfig.loaders() - 1;
          }
          unsigned char* target = slots + state.slot * stage_bytes;
          const int k = block * kWgmmaTileK;
          ptx::Barrier* const landed = pipeline.acquire(state);
          if (leads) {
            ptx::barrier_arrive_expect(landed, static_cast<unsigned>(g.slot_bytes));
            // A box of a K-major operand is one k-block of all lines, one of an MN-major operand 64 lines of all k-blocks.
#pragma unroll
            for (int part = 0; part < kParts; ++part, target += kConfig.blocks * Boxes::kBytesA) {
              unsigned char* const to = target + shift_a * kRowBytes;
#pragma unroll
              for (int i = 0; i < (kConfig.k_major_a ? kConfig.blocks : kTileM / 64); ++i) {
                if constexpr (kConfig.k_major_a)
                  load(kMayShareA && paired, to + i * Boxes::kBytesA, g.a, landed, k + kWgmmaTileK * i, row + shift_a,
                       batch_a + part);
                else
                  load(kMayShareA && paired, to + i * kPieceBytes, g.a, landed, row + 64 * i, k + shift_a, batch_a + part);
              }
            }
#pragma unroll
            for (int part = 0; part < kParts; ++part, target += kConfig.blocks * Boxes::kBytesB) {
              unsigned char* const to = target + shift_b * kRowBytes;
#pragma unroll
              for (int i = 0; i < (kConfig.k_major_b ? kConfig.blocks : kTileN / 64); ++i) {
                if constexpr (kConfig.k_major_b)
                  load(kMayShareB && paired, to + i * Boxes::kBytesB, g.b, landed, k + kWgmmaTileK * i, column + shift_b,
                       batch_b + part);
                if constexpr (kConfig.gated)
                  ptx::tma_load(target + i * Boxes::kBytesB + kConfig.columns() * kRowBytes, &g.up, landed, k + kWgmmaTileK * i,
                                column, batch_b + part);
                if constexpr (!kConfig.k_major_b)
                  load(kMayShareB && paired, to + i * kPieceBytes, g.b, landed, column + 64 * i, k + shift_b, batch_b + part);
              }
            }
          }
          __syncwarp();
        }
      }
      if (cluster > 1) wgmma_detail::sync_cluster();  // merge_tile's
    }
    // Shared memory must outlive the other CTA's arrivals: all of a slot's have come where it may be loaded again. (A barrier
    // of the cluster would fence all memory. The condition found anew, and the loop rolled: else the one above spills.)
    if (kConfig.may_pair() && g.shared && threadIdx.x < 32) {
#pragma unroll 1
      for (int s = 0; s < stages; ++s, state.advance(stages)) pipeline.acquire(state);
    }
  } else {
    if constexpr (kConfig.consumers() == 2) ptx::acquire_registers<240>();
    using LayoutA = ptx::OperandLayout<kConfig.k_major_a, 128, kPieceBytes>;
    using LayoutB = ptx::OperandLayout<kConfig.k_major_b, 128, kPieceBytes>;
    using Instruction = ptx::Wgmma<Element, kConfig.k_major_a, kConfig.k_major_b>;
    const int consumer = warpgroup - 1, thread = static_cast<int>(threadIdx.x) - 128;  // of the consumers
    const int lane = thread % 32;
    const std::uint32_t base_a =
        LayoutA::descriptor_low(ptx::shared_address(slots) + consumer * (kConfig.k_major_a ? 64 * kRowBytes : kPieceBytes));
    const std::uint32_t base_b = LayoutB::descriptor_low(ptx::shared_address(slots) + kParts * kConfig.blocks * Boxes::kBytesA);

    constexpr int kSteps = kConfig.blocks * kWgmmaTileK / 16;
    // Steps `from` .. `to` - 1 of the products of the slot at `offset`, as one committed group. Offsets are in the descriptors'
    // units of 16 bytes.
    const auto offset_of = [&](int slot) { return static_cast<std::uint32_t>(agreed(slot) * (stage_bytes / 16)); };
    const auto multiply = [&](auto& sums, std::uint32_t offset, bool accumulate, int from, int to) {
#pragma unroll
      for (int product = kParts == 1 ? 2 : 0; product < 3; ++product) {
        const int part_a = product == 0, part_b = product == 1;  // lo*hi, hi*lo, hi*hi
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          if (step < from || step >= to) continue;
          const int at_a =
              kConfig.k_major_a ? step / 4 * Boxes::kBytesA + step % 4 * LayoutA::kStepBytes : step * LayoutA::kStepBytes;
          const int at_b =
              kConfig.k_major_b ? step / 4 * Boxes::kBytesB + step % 4 * LayoutB::kStepBytes : step * LayoutB::kStepBytes;
          const int part_at_a = part_a * kConfig.blocks * Boxes::kBytesA, part_at_b = part_b * kConfig.blocks * Boxes::kBytesB;
          Instruction::mma(sums, LayoutA::descriptor(base_a + offset, part_at_a + at_a),
                           LayoutB::descriptor(base_b + offset, part_at_b + at_b),
                           accumulate || step > 0 || product != (kParts == 1 ? 2 : 0));
        }
      }
      ptx::wgmma_commit();
    };
    constexpr bool kMayPair = kConfig.may_pair(), kAlone = kConsumerWarps == 4;
    const std::uint32_t empty_local = ptx::shared_address(pipeline.empty),
                        empty_pair =
                            kAlone && paired && lane < 2 ? ptx::remote_address(pipeline.empty, static_cast<unsigned>(lane)) : 0;
    const auto release = [&](int slot, bool really) {
      if constexpr (kAlone) {  // predicated, as branches between products would be dear
        ptx::barrier_arrive_if(empty_local + 8 * static_cast<unsigned>(slot), really && !paired && lane == 0);
        if constexpr (kMayPair)
          ptx::barrier_arrive_remote_if(empty_pair + 8 * static_cast<unsigned>(slot), really && empty_pair != 0);
      } else if (really) {
        if (paired) {
          if (lane < 2) ptx::barrier_arrive(&pipeline.empty[slot], static_cast<unsigned>(lane));
        } else if (lane == 0) {
          pipeline.release(slot);
        }
      }
    };

    PipelineState<kStages> state;
    // The next `count` slots, at least one, from zero. `stagger`: consumer 2 starts one k-block after consumer 1.
    const auto sum_blocks = [&](auto& result, int count, bool stagger) {
      if constexpr (kParts == 1) {
        // What a slot's hand-over takes lies between its products: an SM's only consumer would else multiply nothing meanwhile.
        constexpr int kHead = kAlone ? 2 : kSteps;
        int previous = 0;
        bool landed = false;
        for (int done = 0; done < count; ++done) {
          const std::uint32_t offset = offset_of(state.slot);
          if (!landed) pipeline.wait(state);
          ptx::wgmma_fence();
          multiply(result, offset, done > 0, 0, kHead);
          ptx::wgmma_wait<1>();  // the group before is done, and with it its slot
          release(previous, done > 0);
          previous = state.slot;
          state.advance(stages);
          if constexpr (kHead < kSteps) {
            landed = pipeline.ready(state);
            multiply(result, offset, true, kHead, kSteps);
          }
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(result);
        release(previous, true);
      } else {
        float sums[kAccumulators];
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) result[i] = 0;
        if (stagger && consumer == 1) ptx::named_barrier_sync(wgmma_detail::kStaggerBarrier, kConsumerThreads);
        for (int done = 0; done < count; ++done) {
          pipeline.wait(state);
          const std::uint32_t offset = offset_of(state.slot);
          ptx::wgmma_fence();
          multiply(sums, offset, false, 0, kSteps);
          ptx::wgmma_wait<0>();
          release(state.slot, true);
          state.advance(stages);
          if (stagger && consumer == 0 && done == 0) ptx::named_barrier_arrive(wgmma_detail::kStaggerBarrier, kConsumerThreads);
          ptx::wgmma_pin(sums);
#pragma unroll
          for (int i = 0; i < kAccumulators; ++i) result[i] = fmaf(sums[i], 1.f + 0x1p-23f, result[i]);
        }
      }
    };

    start();
    for (int index = first_item(); index < g.items; index += item_step) {
      const auto item = wgmma_detail::item_at<Config>(g, index, rank, blocks);
      const int begin = item.begin, end = item.end;
      const auto tile = wgmma_detail::locate<Config>(g, item.tile, pair_rank());
      float total[kAccumulators];
      if constexpr (kParts == 1) {
        const auto slots_of = [&](int count) { return (count + kConfig.blocks - 1) / kConfig.blocks; };
        const int count = slots_of(kConfig.may_split() ? min(g.split_blocks, end - begin) : end - begin);
        if constexpr (kConfig.mirrored) {
          for_width(g.width, [&](auto width) { sum_blocks(reinterpret_cast<float(&)[width / 2]>(total), count, false); });
        } else {
          sum_blocks(total, count, false);
        }
        if constexpr (kConfig.may_split()) {
          for (int block = begin + g.split_blocks; block < end; block += g.split_blocks) {  // one CTA for all parts
            float part[kAccumulators];
            sum_blocks(part, slots_of(min(g.split_blocks, end - block)), false);
#pragma unroll
            for (int i = 0; i < kAccumulators; ++i) total[i] += part[i];
          }
        }
      } else {
        // One consumer promotes and stores while the other multiplies. With fewer blocks than slots, consumer 1 could be two
        // items ahead at the barrier; from `stages` blocks on, the ring holds it back.
        bool stagger = kConfig.consumers() == 2 && end - begin >= kStages;
#pragma unroll
        for (int i = 0; i < kAccumulators; ++i) total[i] = 0;
        for (int block = begin; block < end; block += g.chunk_blocks) {
          float sums[kAccumulators];
          sum_blocks(sums, min(g.chunk_blocks, end - block), stagger);
          stagger = false;
#pragma unroll
          for (int i = 0; i < kAccumulators; ++i) total[i] += sums[i];
        }
      }
      if constexpr (kConfig.may_split()) {
        if (cluster > 1) {
          wgmma_detail::merge_tile<Out, Config>(total, g, tile.row, tile.column, tile.batch, item.split, thread, slots, arrived,
                                                static_cast<unsigned>(g.at_a_time.divide(index) & 1), merged);
          continue;
        }
      }
      unsigned again;  // read anew, so that no register holds what follows from it through the main loop
      asm volatile("mov.u32 %0, %%tid.x;" : "=r"(again));
      if constexpr (kConfig.may_spread()) {
        if (g.spread > 1) {
          wgmma_detail::meet_tile<Out, Config>(total, g, tile.row, tile.column, tile.batch, item.tile, item.split,
                                               index + item_step >= g.items, static_cast<int>(again) - 128, share);
          continue;
        }
      }
      const int store_lane = static_cast<int>(again) % 32, store_warp = static_cast<int>(again) / 32 - 4;
      if constexpr (kConfig.mirrored) {
        if (g.shares_bias) ptx::barrier_wait(scales_full, static_cast<unsigned>(g.at_a_time.divide(index) & 1));
        wgmma_detail::store_mirrored<Out, Config>(total, g, tile.column, tile.row, tile.batch, store_warp, store_lane, staging,
                                                  reinterpret_cast<const float*>(scales));
        if (g.shares_bias) {
          __syncwarp();
          if (ptx::elect_one()) ptx::barrier_arrive(scales_empty);
        }
        continue;
      }
      const int row = tile.row + store_warp * 16;
      unsigned char* const own_staging = staging + store_warp * Boxes::kStagingBytes;
      if constexpr (kConfig.gated) {
        wgmma_detail::store_gated<Out, Config>(total, g, row, tile.column, tile.batch, store_lane, own_staging);
      } else {
        const bool shared_scales = kConfig.shares_scales() || g.shares_bias;  // a cluster did not come here
        // The tile's number in this CTA by a division: a counter would be a register through the main loop.
        if (shared_scales) ptx::barrier_wait(scales_full, static_cast<unsigned>(g.at_a_time.divide(index) & 1));
        wgmma_detail::store_tile<Out, Config>(total, g, row, tile.column, tile.batch, store_lane, own_staging, scales,
                                              store_warp * 16);
        if (shared_scales) {
          __syncwarp();
          if (ptx::elect_one()) ptx::barrier_arrive(scales_empty);
        }
      }
    }
    if (ptx::elect_one()) ptx::tma_store_wait_read<0>();  // shared memory must outlive the stores' reads
  }
#endif
}

}  // namespace xgemm::matmul
