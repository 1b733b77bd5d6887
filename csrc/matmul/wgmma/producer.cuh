// Warpgroup 0 of wgmma/kernel.cuh: one or two warps load A and B by TMA, the others fill the epilogue's inputs.
#pragma once
#include "device/ptx/tma.cuh"
#include "device/warp.cuh"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/wgmma/arguments.cuh"
#include "matmul/wgmma/cta.cuh"
#include "matmul/wgmma/split_k.cuh"

namespace xgemm::matmul::wgmma_detail {

// Inputs of the epilogue beside the sums: the factors that undo the scaling of an fp32 tile's lines, or a half-precision tile's
// bias. Idle warps of the producer's warpgroup copy them to shared memory while the tile is multiplied.

/// Largest exponent of factors that may be taken one after the other. Sums are below 2^53 and multiples of 2^-71 (products of
/// scaled fp16 parts are of 2^-48, promotion adds 2^-23 of one): the first product is exact, the second rounds, as unscale().
inline constexpr int kModerate = 60;

/// Called by fillers() threads. Writes the factors that undo the scaling of a tile's rows, then of its columns, as 2^e's bits
/// (outside a float's range: e + 127 in the bits from 23 on, sign included); then for each warp whether all its factors are
/// moderate.
template <WgmmaConfig kConfig>
__device__ __forceinline__ void fill_scales(const WgmmaArguments& g, int row, int column, int batch, int thread, int* scales) {
  constexpr int kTileM = kConfig.tile_m, kLines = kTileM + kConfig.tile_n;
  const int m = static_cast<int>(g.problem.m), n = static_cast<int>(g.problem.n);
  const int first_a = batch * g.batch_step_a * m, first_b = batch * g.batch_step_b * n;  // the plan keeps these in 32 bits
  bool moderate = true;
#pragma unroll 1  // the producer's registers are few
  for (int i = thread; i < kLines; i += kConfig.fillers()) {
    const LineStats* const lines = i < kTileM ? g.lines_a : g.lines_b;
    const int line = i < kTileM ? first_a + min(row + i, m - 1) : first_b + min(column + i - kTileM, n - 1);
    const int e = -split_exponent(lines[line].max_bits);
    moderate = moderate && e >= -kModerate && e <= kModerate;
    scales[i] = (e + 127) << 23;
  }
  moderate = __all_sync(0xffffffffu, moderate);
  if (thread % 32 == 0) scales[kLines + thread / 32] = moderate;
}

/// The same for the bias of a tile's columns of C (swapped: rows of C^T), as floats.
template <class Out, WgmmaConfig kConfig>
__device__ __forceinline__ void fill_bias(const WgmmaArguments& g, const Tile& tile, int thread, int* shared) {
  const Operand& bias = g.problem.bias;
  const bool swapped = kConfig.may_swap() && g.swapped;
  const int first = swapped ? tile.row : tile.column, last = static_cast<int>(swapped ? g.problem.m : g.problem.n) - 1;
#pragma unroll 1
  for (int i = thread; i < (swapped ? kConfig.tile_m : kConfig.tile_n); i += kConfig.fillers()) {
    const Out* const at = static_cast<const Out*>(bias.data) + min(first + i, last) * bias.col_stride;
    reinterpret_cast<float*>(shared)[i] = convert<float>(*at);
  }
}

template <WgmmaConfig kConfig>
struct Producer {
  static constexpr int kParts = kConfig.parts, kStages = kConfig.stages, kRowBytes = kConfig.kRowBytes;
  // With multicast, each CTA loads half of the rows of B's boxes into both CTAs.

  const WgmmaArguments& g;
  const Shared<kConfig>& shared;
  const Cta<kConfig>& cta;
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);
  const bool loads = warp < kConfig.loaders(), leads = ptx::elect_one();
  int turns = warp;  ///< slots that other loaders fill before this warp's next one
  PipelineState<kStages> state{};

  template <bool kMayShare>
  __device__ __forceinline__ void load(unsigned char* to, const CUtensorMap& map, ptx::Barrier* landed, int c0, int c1,
                                       int c2) const {
    if (kMayShare && cta.multicast)
      ptx::tma_load_multicast(to, &map, landed, c0, c1, c2, 3);
    else
      ptx::tma_load(to, &map, landed, c0, c1, c2);
  }

  /// What does not change along k: the tile's place, batches of parts, this CTA's half of B's lines.
  struct Place {
    int row, column, batch_a, batch_b, shift_b;
  };

  /// Loads an operand's part of a slot. A box holds one k-block of all lines of a K-major operand, or all k-blocks of 64 lines
  /// of an MN-major one.
  template <bool kKMajor, bool kMayShare, int kLines>
  __device__ __forceinline__ void load_parts(unsigned char* target, const CUtensorMap& map, ptx::Barrier* landed, int line,
                                             int shift, int batch, int k, int lines = kLines) const {
    if constexpr (kConfig.may_narrow() && !kKMajor)
      asm volatile("" : "+r"(lines));  // else comparisons with it are kept, and spill
#pragma unroll
    for (int part = 0; part < kParts; ++part, target += kConfig.blocks * kLines * kRowBytes)
#pragma unroll
      for (int i = 0; i < (kKMajor ? kConfig.blocks : kLines / 64); ++i) {
        if (!kKMajor && 64 * i >= lines) break;
        unsigned char* const to = target + shift * kRowBytes;
        if constexpr (kKMajor)
          load<kMayShare>(to + i * kLines * kRowBytes, map, landed, k + kWgmmaTileK * i, line + shift, batch + part);
        else
          load<kMayShare>(to + i * kConfig.piece_bytes(), map, landed, line + 64 * i, k + shift, batch + part);
      }
  }
  __device__ __forceinline__ void load_slot(unsigned char* target, ptx::Barrier* landed, const Place& at, int k) const {
    ptx::barrier_arrive_expect(landed, static_cast<unsigned>(g.slot_bytes));
    load_parts<kConfig.k_major_a, false, kConfig.tile_m>(target, g.a, landed, at.row, 0, at.batch_a, k);
    target += kParts * kConfig.blocks * kConfig.bytes_a();
    load_parts<kConfig.k_major_b, kConfig.may_multicast(), kConfig.tile_n>(
        target, g.b, landed, at.column, at.shift_b, at.batch_b, k, kConfig.may_narrow() ? g.tiles.width : kConfig.tile_n);
    if constexpr (kConfig.gated)
      load_parts<true, false, kConfig.tile_n>(target + kConfig.columns() * kRowBytes, g.gate.up, landed, at.column, 0, at.batch_b,
                                              k);
  }

  __device__ __forceinline__ void load_item(int index) {
    const auto item = item_at<kConfig>(g, index, cta.rank, g.k.blocks);
    const int rank_of_pair = warp_uniform(cta.pair_rank());
    const auto tile = locate<kConfig>(g, item.tile, rank_of_pair);
    const int begin = warp_uniform(item.begin), end = warp_uniform(item.end);
    const Place at{warp_uniform(tile.row), warp_uniform(tile.column), warp_uniform(tile.batch * g.batch_step_a * kParts),
                   warp_uniform(tile.batch * g.batch_step_b * kParts),
                   kConfig.may_multicast() ? rank_of_pair * g.tiles.multicast : 0};
    if (index == cta.first_item()) cta.start();
    for (int block = begin; block < end; block += kConfig.blocks, state.advance()) {
      if constexpr (kConfig.loaders() > 1) {
        if (--turns >= 0) continue;
        turns = kConfig.loaders() - 1;
      }
      ptx::Barrier* const landed = shared.pipeline.acquire(state);
      if (leads) load_slot(shared.slots + state.slot * kConfig.stage_bytes(), landed, at, block * kWgmmaTileK);
      __syncwarp();
    }
  }

  /// A warp that does not load, before its items.
  __device__ __forceinline__ void start_idle() const {
    if constexpr (kConfig.may_store_direct() && kConfig.k_major_b) {
      if (warp == 3 && g.prefetch.bytes > 0) {
        const auto item = item_at<kConfig>(g, cta.first_item(), cta.rank, g.k.blocks);
        prefetch_b(g, item, locate<kConfig>(g, item.tile, cta.pair_rank()));
      }
    }
    cta.start();
    fetch_arguments(g);
  }
  /// Fills the epilogue's inputs for each tile. There is no cluster that splits K.
  template <class Out>
  __device__ __forceinline__ void fill_inputs() const {
    unsigned parity = 1;
    for (int index = cta.first_item(); index < g.schedule.items; index += cta.item_step(), parity ^= 1) {
      ptx::barrier_wait(shared.filled.empty, parity);
      const auto tile = locate<kConfig>(g, index, cta.pair_rank());
      const int thread = static_cast<int>(threadIdx.x) - 32 * kConfig.loaders();
      if constexpr (kConfig.fills_scales())
        fill_scales<kConfig>(g, tile.row, tile.column, tile.batch, thread, shared.inputs);
      else
        fill_bias<Out, kConfig>(g, tile, thread, shared.inputs);
      ptx::barrier_arrive(shared.filled.full);
    }
  }

  template <class Out>
  __device__ __forceinline__ void run() {
    if (!loads) start_idle();
    bool walks = true;
    if constexpr (!kConfig.gated) {
      if (!loads && (kConfig.fills_scales() ? cta.cluster == 1 : g.fills_bias)) fill_inputs<Out>(), walks = false;
    }
    unsigned merges = 0;
    for (int index = walks ? cta.first_item() : g.schedule.items; index < g.schedule.items; index += cta.item_step()) {
      if (loads) {
        if (cta.cluster > 1 && merges++ > 0) ptx::barrier_wait(shared.merged, merges & 1);
        load_item(index);
      }
      if (cta.cluster > 1) sync_cluster();  // matches the one in reduce_in_cluster
    }
    // Shared memory must outlive the other CTA's arrivals: a slot has received all of them when it may be loaded again. (A
    // cluster barrier would fence all memory. The condition is read again and the loop stays rolled, or the loop above spills.)
    if (kConfig.may_multicast() && g.tiles.multicast && threadIdx.x < 32) {
#pragma unroll 1
      for (int s = 0; s < kStages; ++s, state.advance()) shared.pipeline.acquire(state);
    }
  }
};

}  // namespace xgemm::matmul::wgmma_detail
