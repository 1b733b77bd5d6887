// The main loop of a consumer warpgroup: 64 rows against their keys.
//
// Several warpgroups: step n issues S(n) = Q K(n)^T and O += P(n+1) V(n+1), and computes the softmax of S(n) during the latter.
// The warpgroups take turns at issuing. (FlashAttention-3's order, Shah et al. 2024.)
// One warpgroup, which waits for keys and values: S, softmax and O += P V in sequence.
//
// P becomes an A operand in registers only when no wgmma in flight reads the previous P: else ptxas serialises wgmmas (C7513)
// or reuses registers that one still reads.
#pragma once
#include "attention/tiles/mask.cuh"
#include "attention/tiles/scheduler.cuh"
#include "attention/tiles/softmax.cuh"
#include "attention/wgmma/epilogue.cuh"
#include "attention/wgmma/mask_slot.cuh"
#include "attention/wgmma/multiply.cuh"
#include "attention/wgmma/shared.cuh"
#include "device/ptx/bulk_copy.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"

namespace xgemm::attention {

/// Warpgroups take turns in a circle; the first may begin.
template <int kWarpgroups>
struct Turns {
  int warpgroup;
  __device__ __forceinline__ explicit Turns(int mine) : warpgroup(mine) {
    if (kWarpgroups > 1 && mine == kWarpgroups - 1) ptx::named_barrier_arrive(kTurnBarrier, 256);
  }
  __device__ __forceinline__ void wait() const {
    if (kWarpgroups > 1) ptx::named_barrier_sync(kTurnBarrier + warpgroup, 256);
  }
  __device__ __forceinline__ void pass() const {
    if (kWarpgroups > 1) ptx::named_barrier_arrive(kTurnBarrier + (warpgroup + 1 == kWarpgroups ? 0 : warpgroup + 1), 256);
  }
  /// After the last turn: consumes the pending arrival.
  __device__ __forceinline__ void end() const {
    if (warpgroup == 0) wait();
  }
};

template <class Element, int kIndex, Masking kMasking>
struct Consumer {
  using S = Shared<kIndex, kMasking>;
  static constexpr Tile kTile = S::kTile;
  static constexpr int kKeys = kTile.keys;
  /// Do tiles without tests have a loop of their own? With 128 output registers and a mask there are no registers for it.
  static constexpr bool kPlainTiles =
      !has_mask(kMasking) || (kMasking == Masking::additive_tma && kTile.value_size <= 128 && kTile.consumers == 2);
  /// Is a mask loaded to registers a step ahead? A load behind the products ends long after the scores: measured 380 cycles.
  /// Three warpgroups have no registers for an additive one.
  static constexpr bool kMaskAhead = kMasking == Masking::boolean || (kMasking == Masking::additive && kTile.consumers < 3);

  /// Under a causal limit, may a tile of keys be hidden from all rows of a warpgroup, but not from the others'?
  static constexpr bool kMayBeHidden = kTile.consumers > 1 && kTile.rows() > kTile.keys && !has_mask(kMasking);

  /// Are there registers for weights of a row beside its scores (soften_by_rows)?
  static constexpr bool kKeepsScores = kTile.consumers == 2 && kTile.value_size <= 128 && !has_mask(kMasking);

  const ArgumentsOf<TileArguments, kMasking>& g;
  const S shared;
  const Turns<kTile.consumers> turns;
  const int warpgroup;
  PipelineState<kTile.query_slots> query;
  PipelineState<kTile.stages> key, value;
  PipelineState<kItemSlots> told;
  PipelineState<S::kMaskSlots> mask_slot;
  float scores[kKeys / 2], outputs[kTile.value_size / 2];
  std::uint32_t weights[kKeys / 16][4];
  OnlineSoftmax<kKeys> softmax;
  RowLimits limits;            ///< of this thread's rows
  std::uint32_t mask_row = 0;  ///< of the first mask slot
  int last_keys = 0;           ///< Masking::sequences: the sequence's keys

  __device__ __forceinline__ Consumer(const ArgumentsOf<TileArguments, kMasking>& arguments, const S& memory, int mine)
      : g(arguments), shared(memory), turns(mine), warpgroup(mine) {
    if constexpr (S::kMaskSlots > 0) {
      mask_row = ptx::shared_address(shared.mask(warpgroup, 0)) + mask_slot_row<kIndex>(g.mask.slot_rows);
      asm volatile("" : "+r"(mask_row));  // else each step computes it again, between the scores and the exponentials
    }
  }

  /// Issues S = Q K^T of the current slots, and commits it.
  __device__ __forceinline__ void multiply_keys() {
    const auto q = S::Query::descriptor_low(ptx::shared_address(shared.queries + query.slot * kTile.query_bytes()) +
                                            warpgroup * 64 * Tile::kBlockBytes);
    const auto k = S::Key::descriptor_low(ptx::shared_address(shared.keys + key.slot * kTile.key_bytes()));
    ptx::wgmma_pin(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kTile.head_size / 16; ++step)
      ptx::Wgmma<Element, true, true>::mma(
          scores, S::Query::descriptor(q, step / 4 * S::kQueryBlock + step % 4 * S::Query::kStepBytes),
          S::Key::descriptor(k, step / 4 * S::kKeyBlock + step % 4 * S::Key::kStepBytes), step != 0);
    ptx::wgmma_commit();
  }
  /// Issues O += P V, and commits it.
  __device__ __forceinline__ void multiply_values() {
    const auto v = S::Value::descriptor_low(ptx::shared_address(shared.values + value.slot * kTile.value_bytes()));
    multiply_weights<Element, typename S::Value>(outputs, weights, v);
  }

  /// A warp's arrival that releases a slot to the producer.
  template <int kStages>
  __device__ __forceinline__ static void release(const Pipeline<kStages>& slots, PipelineState<kStages>& at) {
    if (threadIdx.x % 32 == 0) slots.release(at.slot);
    at.advance();
  }
  __device__ __forceinline__ void wait_keys() const { shared.key_slots.wait(key); }
  __device__ __forceinline__ void wait_values() const { shared.value_slots.wait(value); }
  __device__ __forceinline__ void release_keys() { release(shared.key_slots, key); }
  __device__ __forceinline__ void release_values() { release(shared.value_slots, value); }

  /// The item that the producer has announced.
  __device__ __forceinline__ int next_item() {
    shared.item_slots.wait(told);
    const int next = shared.items[told.slot];
    __syncwarp();
    release(shared.item_slots, told);
    return next;
  }

  /// Scores become weights.
  __device__ __forceinline__ void soften() {
    const float scale[2] = {g.scale_log2, g.scale_log2};
    softmax.raise_maximum(scores, scale);
    softmax.exponentiate_half(scores, g.scale_log2);
  }
  /// Scores become weights, and O is rescaled: row 0 first, whose exponentials (8 cycles each of a warp) hide row 1's maximum, as
  /// row 1's hide the conversion of weights and O's rescaling. ptxas interleaves them only without a branch in between. So far
  /// bases (kNearBase) are found at the end, and all scores, which are still there, exponentiated again. `values_read`: waits
  /// for O += P V.
  template <class ValuesRead>
  __device__ __forceinline__ void soften_by_rows(const ValuesRead& values_read) {
    float base[2], sums[2][2] = {}, row[kKeys / 4];
    const auto weigh = [&](int h) {
      softmax.raise_row(scores, h, g.scale_log2, h == 0 ? 0.f : softmax.maximum[0]);
      base[h] = __fmul_ru(softmax_base(softmax.maximum[h]), g.scale_log2);
    };
    const auto exponentiate = [&](int h) {
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i)
        sums[h][i % 2] += row[i] = exp2_approx(fmaf(scores[4 * (i / 2) + 2 * h + i % 2], g.scale_log2, -base[h]));
    };
    const auto convert = [&](int h) {
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) weights[i / 2][i % 2 * 2 + h] = pack_pair<Element>(row[2 * i], row[2 * i + 1]);
    };
    weigh(0);
    exponentiate(0);
    weigh(1);
    values_read();
    convert(0);
    exponentiate(1);
    convert(1);
#pragma unroll
    for (int i = 0; i < kTile.value_size / 2; ++i) outputs[i] *= softmax.factor[i / 2 % 2];
    if (__any_sync(kFullWarp, fabsf(base[0]) > kNearBase || fabsf(base[1]) > kNearBase)) {
      softmax.exponentiate_half(scores, g.scale_log2);
      convert_weights();
    } else {
#pragma unroll
      for (int h = 0; h < 2; ++h) softmax.sum[h] = fmaf(softmax.sum[h], softmax.factor[h], sums[h][0] + sums[h][1]);
    }
  }
  __device__ __forceinline__ void convert_weights() {
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) to_fragment<Element>(weights[step], scores, step);
  }

  using Walk = KeyWalk<kKeys, kMasking>;
  using Mask = TileMask<kKeys, kMasking, kMaskAhead>;

  /// Loads the mask of the current tile to registers, or waits for TMA's load.
  __device__ __forceinline__ void load_mask(const Walk& walk, Mask& mask) const {
    if constexpr (S::kMaskSlots > 0) {
      if (walk.on_mask()) shared.mask_slots(warpgroup).wait(mask_slot);
    } else {
      mask.load(g, walk.n, walk.on_mask(), !walk.on_edge());
    }
  }
  /// While the scores are computed.
  __device__ __forceinline__ void load_this_mask(const Walk& walk, Mask& mask) const {
    if constexpr (!kMaskAhead) load_mask(walk, mask);
  }
  /// Before the exponentials, which hide it: with a mask, the step to the next tile.
  __device__ __forceinline__ void advance_masked(Walk& walk, Mask& mask) const {
    if constexpr (has_mask(kMasking)) walk.next();
    if constexpr (kMaskAhead) mask.load(g, walk.n, walk.valid() && walk.on_mask(), !walk.on_edge());
  }
  /// At the end of a step, without a mask.
  __device__ __forceinline__ void advance_unmasked(Walk& walk) const {
    if constexpr (!has_mask(kMasking)) walk.next();
  }
  __device__ __forceinline__ void apply_mask_slot(const Walk& walk) {
    if (walk.on_mask()) {
      add_mask_slot<Element, kIndex>(scores, mask_row + mask_slot.slot * kTile.mask_bytes(), g.score_scale);
      ptx::fence_async_shared();  // keeps the arrival behind ldmatrix: TMA refills the slot
      __syncwarp();
      release(shared.mask_slots(warpgroup), mask_slot);
    } else {
#pragma unroll
      for (float& score : scores) score *= g.score_scale;
    }
  }
  /// `kTest`: some row may not see a key of this tile, or scores are capped.
  template <bool kTest>
  __device__ __forceinline__ void mask_scores(const Walk& walk, Mask& mask) {
    if constexpr (kTest)
      if (g.cap_scale != 0.f) cap_scores(scores, g.cap_scale);
    if constexpr (S::kMaskSlots > 0)
      apply_mask_slot(walk);
    else if constexpr (kTest)
      mask.apply(scores, g);
    if constexpr (kTest)
      if (walk.on_edge()) mask_edges<kKeys>(scores, walk.n * kKeys, limits);
  }
  /// Calls step(std::bool_constant<test>{}) for the remaining tiles. Inner tiles have no tests, since a branch makes ptxas wait
  /// for products in flight.
  template <class Step>
  __device__ __forceinline__ void walk_on(Walk& walk, const Step& step) const {
    const bool capped = g.cap_scale != 0.f;
    if constexpr (kPlainTiles) {
#pragma unroll 1
      while (walk.valid()) {
#pragma unroll 1
        while (walk.valid() && (capped || walk.on_edge())) step(std::true_type{});
#pragma unroll 1
        while (walk.valid() && !(capped || walk.on_edge())) step(std::false_type{});
      }
    } else {
#pragma unroll 1
      while (walk.valid()) step(std::true_type{});
    }
  }

  /// The last tile of a sequence's keys, the first of the walk, holds values behind the last key, which are another sequence's or
  /// unused, and may be NaN: zeros instead. Every warpgroup writes them before its products, which other warpgroups' zeros do not
  /// change.
  __device__ __forceinline__ void clear_values(int n) {
    constexpr int kPieces = Tile::kBlockBytes / 16;
    const int keys = last_keys - n * kKeys;
    if (keys >= kKeys) return;
    wait_values();
    unsigned char* const slot = shared.values + value.slot * kTile.value_bytes();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) % 128; i < (kKeys - keys) * kPieces; i += 128)
#pragma unroll
      for (int block = 0; block < S::kValueBlocks; ++block)
        *reinterpret_cast<uint4*>(slot + block * S::kKeyBlock + (keys * kPieces + i) * 16) = uint4{};
    ptx::fence_async_shared();
    ptx::named_barrier_sync(kEpilogueBarrier + warpgroup, 128);
  }

  __device__ __forceinline__ void run_in_turn(Walk& walk, Mask& mask) {
    walk_on(walk, [&](auto test) {
      wait_keys();
      multiply_keys();
      load_this_mask(walk, mask);
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(scores);
      release_keys();
      mask_scores<test.value>(walk, mask);
      advance_masked(walk, mask);
      soften();
      softmax.rescale(outputs);
      convert_weights();
      wait_values();
      multiply_values();
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(outputs);
      release_values();
      advance_unmasked(walk);
    });
  }

  /// Passes over the tiles at the beginning of the walk of which no row of this warpgroup sees a key. It takes part in their
  /// turns, as others do see keys.
  __device__ __forceinline__ void skip_hidden(Walk& walk) {
#pragma unroll 1
    for (; walk.valid() && walk.n >= walk.hidden; walk.next()) {
      wait_keys(), wait_values();
      turns.wait(), turns.pass();
      release_keys(), release_values();
    }
  }

  __device__ __forceinline__ void run_overlapped(Walk& walk, Mask& mask) {
    if (!walk.valid()) return;
    if constexpr (kMayBeHidden) {
      skip_hidden(walk);
      if (!walk.valid()) return turns.wait(), turns.pass();  // the turn of the last values
    }
    bool keys_ready, values_ready;  // of the next step: a test takes 40 cycles, which the softmax hides
    const auto finish_scores = [&](auto test, const PipelineState<kTile.stages>& values) {
      release_keys();
      mask_scores<test.value>(walk, mask);
      advance_masked(walk, mask);
      keys_ready = shared.key_slots.ready(key);
      values_ready = shared.value_slots.ready(values);
    };
    wait_keys();
    turns.wait();
    multiply_keys();
    turns.pass();
    load_this_mask(walk, mask);
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(scores);
    if constexpr (kMasking == Masking::sequences) clear_values(walk.n);
    finish_scores(std::true_type{}, value);
    soften();
    convert_weights();
    advance_unmasked(walk);
    walk_on(walk, [&](auto test) {
      if (!keys_ready) wait_keys();
      turns.wait();
      multiply_keys();
      if (!values_ready) wait_values();
      multiply_values();
      turns.pass();
      load_this_mask(walk, mask);
      ptx::wgmma_wait<1>();
      ptx::wgmma_pin(scores);
      PipelineState<kTile.stages> values = value;
      values.advance();
      finish_scores(test, values);
      const auto values_read = [&] {
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(outputs);
        release_values();
      };
      if constexpr (kKeepsScores) {
        soften_by_rows(values_read);
      } else {
        soften();
        ptx::stay_behind(softmax.sum[0] + softmax.sum[1]);
        values_read();
        softmax.rescale(outputs);
        convert_weights();
      }
      advance_unmasked(walk);
    });
    turns.wait();
    wait_values();
    multiply_values();
    turns.pass();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(outputs);
    release_values();
  }

  /// There are no registers for a sequence's tile in the loop. Its entry of the list is in L1.
  __device__ __forceinline__ const RowTile& find_again(const RowTile& tile, int) const { return tile; }
  __device__ __forceinline__ SequenceTile find_again(const SequenceTile&, int item) const {
    asm volatile("" : "+r"(item));
    return SequenceTile(g, item);
  }

  __device__ __forceinline__ void run() {
    const int row_in_tile = static_cast<int>(threadIdx.x - 128) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
    for (int item = static_cast<int>(blockIdx.x); item < item_count(g); item = next_item()) {
      const TileOf<kMasking> tile(g, item);
      const auto& bounds = tile.bounds(g);
      if constexpr (kMasking == Masking::sequences) last_keys = bounds.sk;
      Walk walk(g, tile, kMayBeHidden ? 64 * warpgroup : 0, kMayBeHidden ? 64 : g.tile_rows);
      const int rows[2] = {tile.row + row_in_tile, tile.row + row_in_tile + 8};
      Mask mask(g, tile, rows, S::kRows);
      limits = RowLimits(g, bounds, rows[0]);
      softmax = {};
#pragma unroll
      for (float& output : outputs) output = 0;

      if (kMaskAhead && walk.valid()) load_mask(walk, mask);
      shared.query_slots.wait(query);
      if constexpr (kTile.consumers == 1)
        run_in_turn(walk, mask);
      else
        run_overlapped(walk, mask);

      softmax.finish();
      if (kMasking == Masking::sequences || !g.through_memory) {
        store_outputs<Element, kIndex, kMasking>(outputs, softmax, g, find_again(tile, item),
                                                 shared.queries + query.slot * kTile.query_bytes());
        if (threadIdx.x % 32 == 0) ptx::tma_store_wait_read<0>();
        release(shared.query_slots, query);
      } else {
        release(shared.query_slots, query);
        leave_partials(outputs, softmax.maximum, softmax.sum, g, tile, Place().row(0));
      }
      __syncwarp();
    }
    turns.end();
  }
};

}  // namespace xgemm::attention
