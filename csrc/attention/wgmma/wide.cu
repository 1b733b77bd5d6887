// Attention whose values have 257 to 512 columns (sm_90a), half or bf16.
//
// Computes what kernel.cuh does without masks: causal with any shift, windows, soft capping, sinks, the log-sum-exp; of sequences
// of different lengths, whose keys may lie in pages of any size, too.
//   Operands   as kernel.cuh's. kLatent: the values are the keys' first columns (latent attention: DeepSeek's MLA, absorbed, with
//              keys of 512 + 64 columns), D up to 576; else D up to 512. Dv up to 512, zeros beyond; scale > 0.
//   Roles      a CTA has one item: 64 rows against one split of the keys. Warpgroup 0 loads by TMA. Warpgroups 1 and 2, the two
//              sides, share the rows, as registers hold 256 columns of outputs: a side computes the scores of half of a step's
//              keys, and sums its 256 columns of the values for all of them. (FlashMLA's division of work; here the sides
//              exchange their maxima first, so that both have the same.)
//   Slots      two of 64 keys, in three parts: the left and the right 256 columns, each read last by one side, and 64 more, in
//              whose place a side leaves its weights for the other. kLatent: a slot of keys for each side, 128 a step. Else one
//              of keys and one of values, 64 a step: either is loaded while the other is used. A box of TMA has the largest power
//              of two of rows, at most 64, that divides a page.
//   Order      as kernel.cuh's; a step's maximum is that of all its keys. A side adds its own keys' values first.
//   Floor      keys (and values) through memory once for all rows, and through L2 once for 64; 2 Sq Sk (D + Dv) flop at 4096 a
//              cycle and SM. Shared memory is read for as long as the tensor cores compute scores.
#include "attention/tiles/finish.cuh"
#include "attention/tiles/mask.cuh"
#include "attention/tiles/sequences.cuh"
#include "attention/tiles/softmax.cuh"
#include "attention/wgmma/multiply.cuh"
#include "attention/wgmma/wide.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "device/ptx/mbarrier.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/shared_memory.cuh"

namespace xgemm::attention {

enum WideSlot { kKeySlot, kValueSlot };  ///< if the values are not the keys

/// Shared memory and its barriers.
struct WideShared {
  static constexpr int kParts = 3, kSlot = kWideBlocks * kWideBlockBytes;
  static __device__ __forceinline__ int first_block(int part) { return 4 * part; }
  static __device__ __forceinline__ int blocks_of(int part) { return part == 2 ? 1 : 4; }
  using Rows = ptx::OperandLayout<true, Tile::kBlockBytes, kWideBlockBytes>;     ///< queries, keys and weights
  using Values = ptx::OperandLayout<false, Tile::kBlockBytes, kWideBlockBytes>;  ///< by columns

  unsigned char *queries, *slots;
  ptx::Barrier *queries_full, *full, *empty;  ///< of parts: [slot][part]
  float* exchange;                            ///< [side][row]

  __device__ __forceinline__ explicit WideShared(unsigned char* memory)
      : queries(memory),
        slots(memory + kSlot),
        queries_full(reinterpret_cast<ptx::Barrier*>(slots + 2 * kSlot)),
        full(queries_full + 1),
        empty(full + 2 * kParts),
        exchange(reinterpret_cast<float*>(empty + 2 * kParts)) {}
  __device__ __forceinline__ unsigned char* part(int slot, int part) const {
    return slots + slot * kSlot + first_block(part) * kWideBlockBytes;
  }

  /// Called by one thread; a CTA barrier follows. A part is read last by the four warps of one side, or by both sides.
  template <bool kLatent>
  __device__ __forceinline__ void init_barriers() const {
    ptx::barrier_init(queries_full, 1);
    for (int i = 0; i < 2 * kParts; ++i) {
      ptx::barrier_init(full + i, 1);
      ptx::barrier_init(empty + i, !kLatent && i / kParts == kKeySlot ? 8 : 4);
    }
    ptx::fence_barrier_init();
  }
};

/// Where boxes of keys begin, in coordinates of the operands' maps.
struct WideBox {
  int row, batch;
};
__device__ __forceinline__ int box_rows(const TileArguments&) { return kWideSlotKeys; }
__device__ __forceinline__ int box_rows(const WithSequences<TileArguments>& g) { return wide_box_rows(g.sequences); }
__device__ __forceinline__ WideBox find_box(const TileArguments&, const RowTile& tile, int key) {
  return {key, tile.key_batch()};
}
__device__ __forceinline__ WideBox find_box(const WithSequences<TileArguments>& g, const SequenceTile& tile, int key) {
  const Sequences& s = g.sequences;
  if (s.key_offsets != nullptr) return {tile.first_key() + key, 0};
  if (s.table == nullptr) return {key, tile.key_batch()};
  const int index = s.page_rows.divide(key);
  const int page = key < tile.sk ? __ldg(s.table + tile.sequence * s.table_step + index) : -1;
  if (static_cast<unsigned>(page) >= static_cast<unsigned>(s.pages)) return {g.sk, 0};  // behind a page's rows: zeros
  return {key - index * static_cast<int>(s.page_rows.divisor), page};
}

/// The producer's warp: parts in the order in which the sides release them, which is that in which they need them.
template <bool kLatent, Masking kMasking>
__device__ __forceinline__ void produce_wide(const ArgumentsOf<TileArguments, kMasking>& g, const WideShared& shared,
                                             const TileOf<kMasking>& tile) {
  using S = WideShared;
  constexpr Tile kTile = kWideTiles[kLatent];
  const bool leads = ptx::elect_one();
  if (leads) {
    const int blocks = kTile.head_size / 64;
    ptx::barrier_arrive_expect(shared.queries_full, blocks * g.tile_rows * Tile::kBlockBytes);
    for (int block = 0; block < blocks; ++block)
      ptx::tma_load(shared.queries + block * kWideBlockBytes, &g.query, shared.queries_full, 64 * block, tile.head,
                    tile.first_position() + g.pack.divide(tile.row), tile.inner * g.query_steps.inner,
                    tile.outer * g.query_steps.outer);
  }
  const int rows = box_rows(g), boxes = kWideSlotKeys / rows;
  // Of the boxes of a slot from a key on, the lane's; the first 32 are found before the slot is free.
  const auto find = [&](int key) { return find_box(g, tile, key + static_cast<int>(threadIdx.x) % boxes * rows); };
  unsigned parity = 1;  // of the parts' empty barriers
  const auto load = [&](int slot, int part, int key, WideBox mine, const CUtensorMap& map, int inner, int outer_step) {
    ptx::Barrier* const landed = shared.full + slot * S::kParts + part;
    ptx::barrier_wait(shared.empty + slot * S::kParts + part, parity);
    __syncwarp();
    if (leads) ptx::barrier_arrive_expect(landed, S::blocks_of(part) * kWideBlockBytes);
#pragma unroll 1
    for (int i = 0; i < boxes; ++i) {
      if (i == kWarpSize) mine = find(key + kWarpSize);
      const int row = __shfl_sync(kFullWarp, mine.row, i), batch = __shfl_sync(kFullWarp, mine.batch, i);
      if (!leads) continue;
      for (int block = 0; block < S::blocks_of(part); ++block)
        ptx::tma_load(shared.part(slot, part) + block * kWideBlockBytes + i * rows * Tile::kBlockBytes, &map, landed,
                      64 * (S::first_block(part) + block), row, inner, batch * outer_step);
    }
  };
  const int key_inner = tile.inner * g.key_steps.inner, value_inner = tile.inner * g.value_steps.inner;
  for (KeyWalk<kTile.keys, kMasking> walk(g, tile); walk.valid(); walk.next(), parity ^= 1) {
    const int key = walk.n * kTile.keys;
    const WideBox first = find(key);
    if constexpr (kLatent) {
      const WideBox second = find(key + kWideSlotKeys);
      for (int i = 0; i < 2 * S::kParts; ++i)  // (0, 0), (1, 1), (0, 1), (1, 0), (0, 2), (1, 2)
        load(i % 2, i < 4 ? (i + i / 2) % 2 : 2, key + kWideSlotKeys * (i % 2), i % 2 == 0 ? first : second, g.key, key_inner,
             g.key_steps.outer);
    } else {
      for (int part = 0; part < 2; ++part) load(kKeySlot, part, key, first, g.key, key_inner, g.key_steps.outer);
      for (int part = 0; part < 2; ++part) load(kValueSlot, part, key, first, g.value, value_inner, g.value_steps.outer);
    }
  }
}

/// A side: the scores of its half of a step's keys, and the columns of the outputs from 256 `side` on.
template <class Element, bool kLatent, Masking kMasking>
struct WideSide {
  using S = WideShared;
  static constexpr Tile kTile = kWideTiles[kLatent];
  static constexpr int kKeys = kTile.keys / 2, kColumns = kTile.value_size / 2;
  static constexpr int kBothSides = 256;  ///< threads

  const ArgumentsOf<TileArguments, kMasking>& g;
  const S& shared;
  const int side, warp_row;  ///< the warp's first row
  unsigned parity = 0;       ///< of the parts' full barriers
  float scores[kKeys / 2], outputs[kColumns / 2] = {};
  std::uint32_t weights[kKeys / 16][4];
  OnlineSoftmax<kKeys> softmax = {};

  __device__ __forceinline__ WideSide(const ArgumentsOf<TileArguments, kMasking>& arguments, const S& memory, int mine)
      : g(arguments), shared(memory), side(mine), warp_row(Place().warp_row % 64) {}

  __device__ __forceinline__ void wait(int slot, int part) const {
    ptx::barrier_wait(shared.full + slot * S::kParts + part, parity);
  }
  __device__ __forceinline__ void release(int slot, int part) const {
    if (threadIdx.x % 32 == 0) ptx::barrier_arrive(shared.empty + slot * S::kParts + part);
  }
  __device__ __forceinline__ float* exchanged(int of) const { return shared.exchange + 64 * of + warp_row; }
  /// Where a side's keys lie in each block of their slot.
  static __device__ __forceinline__ int key_bytes(int of) { return kLatent ? 0 : of * kKeys * Tile::kBlockBytes; }

  /// Issues the products of queries and this side's keys over a part's columns, when it has arrived.
  template <int kSteps>
  __device__ __forceinline__ void multiply_part(int part, bool accumulate) {
    const int slot = kLatent ? side : kKeySlot;
    wait(slot, part);
    const auto q = S::Rows::descriptor_low(ptx::shared_address(shared.queries + S::first_block(part) * kWideBlockBytes));
    const auto k = S::Rows::descriptor_low(ptx::shared_address(shared.part(slot, part)) + key_bytes(side));
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int at = step / 4 * kWideBlockBytes + step % 4 * S::Rows::kStepBytes;
      ptx::Wgmma<Element, true, true>::mma(scores, S::Rows::descriptor(q, at), S::Rows::descriptor(k, at),
                                           accumulate || step != 0);
    }
  }
  __device__ __forceinline__ void multiply_keys() {
    ptx::wgmma_pin(scores);
    multiply_part<16>(kLatent ? side : 0, false);
    multiply_part<16>(kLatent ? 1 - side : 1, true);
    if constexpr (kLatent) multiply_part<4>(2, true);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(scores);
    if constexpr (!kLatent) release(kKeySlot, 0), release(kKeySlot, 1);
  }

  /// Raises the maxima to those of both sides' scores.
  __device__ __forceinline__ void raise_maxima() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float largest[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = row_maximum(scores, h);
      if (lane % 4 == 0) exchanged(side)[lane / 4 + 8 * h] = largest[h];
    }
    ptx::named_barrier_sync(kWideBarrier, kBothSides);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float before = softmax.maximum[h];
      softmax.maximum[h] = fmaxf(before, fmaxf(largest[h], exchanged(1 - side)[lane / 4 + 8 * h]));
      softmax.factor[h] = rescale_factor(before, softmax.maximum[h], g.scale_log2);
    }
  }

  /// Leaves the weights in the place of the slot's last part, where the other side reads them.
  __device__ __forceinline__ void leave_weights() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::uint32_t row = ptx::shared_address(shared.part(side, 2)) + (warp_row + lane % 16) * Tile::kBlockBytes;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      ptx::store_matrices(row + 16 * ((2 * step + lane / 16) ^ (lane % 8)), weights[step]);
    ptx::fence_async_shared();
    ptx::named_barrier_sync(kWideBarrier, kBothSides);
  }

  /// This side's columns of the values of a side's keys.
  __device__ __forceinline__ std::uint32_t values_of(int of) const {
    return S::Values::descriptor_low(ptx::shared_address(shared.part(kLatent ? of : kValueSlot, side)) + key_bytes(of));
  }
  /// Adds this side's columns of the values: of its own keys by weights in registers, which it leaves for the other side
  /// meanwhile, then of the other's.
  __device__ __forceinline__ void multiply_values() {
    if constexpr (kLatent)
      wait(1 - side, side);
    else
      wait(kValueSlot, side);
    const auto mine = values_of(side), others = values_of(1 - side);
    const auto others_weights = S::Rows::descriptor_low(ptx::shared_address(shared.part(1 - side, 2)));
    multiply_weights<Element, typename S::Values>(outputs, weights, mine);
    leave_weights();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step)
      ptx::Wgmma<Element, true, false>::mma(outputs, S::Rows::descriptor(others_weights, step * S::Rows::kStepBytes),
                                            S::Values::descriptor(others, step * S::Values::kStepBytes), true);
    ptx::wgmma_commit();
    if constexpr (kLatent) {
      ptx::wgmma_wait<1>();
      release(side, side);
    }
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(outputs);
    if constexpr (kLatent)
      release(1 - side, side), release(1 - side, 2);
    else
      release(kValueSlot, side);
  }

  /// Values behind a sequence's last key are another sequence's or unused, and may be NaN: zeros instead. They lie in the first
  /// step of the walk. A side writes them where it reads keys (kLatent) or values.
  __device__ __forceinline__ void clear_values(int left) {
    constexpr int kPieces = Tile::kBlockBytes / 16;
    if (left >= kTile.keys) return;
    if constexpr (kLatent) left = max(left - side * kKeys, 0);
    const auto clear = [&](int slot, int part) {
      wait(slot, part);
      unsigned char* const to = shared.part(slot, part);
#pragma unroll 1
      for (int i = left * kPieces + static_cast<int>(threadIdx.x) % 128; i < kWideSlotKeys * kPieces; i += 128)
#pragma unroll
        for (int block = 0; block < 4; ++block) *reinterpret_cast<uint4*>(to + block * kWideBlockBytes + 16 * i) = uint4{};
    };
    if constexpr (kLatent)
      clear(side, 0), clear(side, 1);
    else
      clear(kValueSlot, side);
    ptx::fence_async_shared();
    ptx::named_barrier_sync(kWideBarrier, kBothSides);
  }

  __device__ __forceinline__ void run(const TileOf<kMasking>& tile) {
    const int first_row = warp_row + static_cast<int>(threadIdx.x) % 32 / 4;
    const RowLimits limits(g, tile.bounds(g), tile.row + first_row);
    ptx::barrier_wait(shared.queries_full, 0);
    KeyWalk<kTile.keys, kMasking> walk(g, tile);
    if constexpr (kMasking == Masking::sequences)
      if (walk.valid()) clear_values(tile.sk - walk.n * kTile.keys);
#pragma unroll 1
    for (; walk.valid(); walk.next(), parity ^= 1) {
      multiply_keys();
      if (g.cap_scale != 0.f) cap_scores(scores, g.cap_scale);
      if (walk.on_edge()) mask_edges<kKeys>(scores, walk.n * kTile.keys + side * kKeys, limits);
      raise_maxima();
      softmax.exponentiate_half(scores, g.scale_log2);
      softmax.rescale(outputs);
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step) to_fragment<Element>(weights[step], scores, step);
      multiply_values();
    }
    finish(tile, first_row);
  }

  /// Adds the sides' sums, and stores this side's columns.
  __device__ __forceinline__ void finish(const TileOf<kMasking>& tile, int first_row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    softmax.finish();
#pragma unroll
    for (int h = 0; h < 2; ++h)
      if (lane % 4 == 0) exchanged(side)[lane / 4 + 8 * h] = softmax.sum[h];
    ptx::named_barrier_sync(kWideBarrier, kBothSides);
#pragma unroll
    for (int h = 0; h < 2; ++h) softmax.sum[h] = exchanged(0)[lane / 4 + 8 * h] + exchanged(1)[lane / 4 + 8 * h];
    if (tile.in_memory(g))
      leave_partials<2>(outputs, softmax.maximum, softmax.sum, g, tile, first_row, side);
    else
      store_rows(tile, first_row);
  }
  __device__ __forceinline__ void store_rows(const TileOf<kMasking>& tile, int first_row) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first_row + 8 * h;
      const std::int64_t out = row < g.tile_rows ? tile.output_row(g, tile.row + row) : -1;
      float maximum = softmax.maximum[h], sum = softmax.sum[h];
      const float keys = sum, inverse = finish_row(g, tile, tile.row + row, maximum, sum);
      if (out < 0) continue;
      if (g.lse != nullptr && side == 0 && lane % 4 == 0) g.lse[out] = log_sum(maximum, sum, g.scale);
      std::uint32_t* const to = static_cast<std::uint32_t*>(g.out) + g.out_rows.place(out) * g.dv / 2;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const int column = side * kColumns + 8 * j + 2 * (lane % 4);
        const float* const pair = outputs + 4 * j + 2 * h;
        // 0 if the row sees no key, even if a value is NaN
        if (column < g.dv) to[column / 2] = keys == 0.f ? 0 : pack_pair<Element>(pair[0] * inverse, pair[1] * inverse);
      }
    }
  }
};

template <class Element, bool kLatent, Masking kMasking>
__global__ void __launch_bounds__(kWideThreads, 1)
    attention_wide(const __grid_constant__ ArgumentsOf<TileArguments, kMasking> g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char attention_wide_memory[];
  const WideShared shared(attention_wide_memory);
  if (threadIdx.x == 32) shared.init_barriers<kLatent>();
  if (threadIdx.x == 64) {
    ptx::prefetch_tensor_map(&g.query), ptx::prefetch_tensor_map(&g.key);
    if constexpr (!kLatent) ptx::prefetch_tensor_map(&g.value);
  }
  __syncthreads();
  ptx::grid_release();
  ptx::grid_wait();

  const auto own_tile = TileOf<kMasking>::find(g, static_cast<int>(blockIdx.x));
  if (!own_tile.exists()) return;
  const auto& tile = hold_tile(own_tile);
  const int warpgroup = warp_uniform(static_cast<int>(threadIdx.x) / 128);
  if (warpgroup == 0) {
    ptx::release_registers<24>();
    if (threadIdx.x < 32) produce_wide<kLatent, kMasking>(g, shared, tile);
  } else {
    ptx::acquire_registers<240>();
    WideSide<Element, kLatent, kMasking>(g, shared, warpgroup - 1).run(tile);
  }
#endif
}

template <class Element, Masking kMasking>
void launch_wide(bool latent, const ArgumentsOf<TileArguments, kMasking>& g, int ctas, cudaStream_t stream) {
  const Grid grid{.blocks = static_cast<unsigned>(ctas), .threads = kWideThreads, .early = true};
  if (latent)
    enqueue_with_shared<attention_wide<Element, true, kMasking>, kWideBytes>(grid, stream, g);
  else
    enqueue_with_shared<attention_wide<Element, false, kMasking>, kWideBytes>(grid, stream, g);
}
void launch_wide(DType dtype, bool latent, const TileArguments& g, int ctas, cudaStream_t stream) {
  (dtype == DType::f16 ? launch_wide<half, Masking::edges> : launch_wide<bf16, Masking::edges>)(latent, g, ctas, stream);
}
void launch_wide(DType dtype, bool latent, const WithSequences<TileArguments>& g, int ctas, cudaStream_t stream) {
  (dtype == DType::f16 ? launch_wide<half, Masking::sequences> : launch_wide<bf16, Masking::sequences>)(latent, g, ctas, stream);
}

}  // namespace xgemm::attention
