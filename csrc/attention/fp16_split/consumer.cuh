// The main loop of a consumer warpgroup: 64 rows against their keys, S, softmax and P V in sequence; while one warpgroup
// computes exponentials, another multiplies (cuDNN's order on Hopper).
//
//   S = Qlo Khi + Qhi Klo + Qhi Khi    one accumulator: the parts share a scale. Small products first.
//   P = Phi + Plo                      in registers, where the scores were
//   part = Plo Vhi + Phi Vlo + Phi Vhi from zero
//   O = part * scale + O * factor      on CUDA cores, rounded to nearest: the promotion of the tensor core's truncated sums
//                                      is the rescale of the online softmax
//
// With one part a product is Qhi Khi, Phi Vhi alone.
#pragma once
#include "attention/fp16_split/finish.cuh"
#include "attention/fp16_split/shared.cuh"
#include "attention/tiles/mask.cuh"
#include "attention/wgmma/consumer.cuh"
#include "device/ptx/bulk_copy.cuh"

namespace xgemm::attention {

template <int kIndex, Masking kMasking>
struct SplitConsumer {
  using S = SplitShared<kIndex>;
  static constexpr Tile kTile = S::kTile;
  static constexpr int kKeys = kTile.keys, kParts = S::kParts;
  using Walk = KeyWalk<kKeys, kMasking>;
  /// An additive mask's numbers fit in registers with the scores in flight and 32 outputs, not with 64.
  static constexpr bool kMaskByQuarters = kMasking == Masking::additive && kTile.value_size > 64;
  /// Queries are released after the last scores, not after the last values, if there are registers to detect the last tile.
  static constexpr bool kReleasesEarly = kMasking == Masking::edges && kTile.value_size <= 128;
  using Mask = std::conditional_t<kMasking == Masking::additive, AdditiveMask<kMaskByQuarters ? kKeys / 4 : kKeys>,
                                  TileMask<kKeys, kMasking>>;

  const SplitArguments& g;
  const S shared;
  PipelineState<1> query;
  PipelineState<kTile.stages> slot;
  float outputs[kTile.value_size / 2];
  OnlineSoftmax<kKeys> softmax;  ///< sums times kWeightScale
  float row_scale[2];            ///< of scores before the softmax (additive masks), else of its argument in units of log2

  __device__ __forceinline__ SplitConsumer(const SplitArguments& arguments, const S& memory) : g(arguments), shared(memory) {}

  __device__ __forceinline__ static int warpgroup() { return static_cast<int>(threadIdx.x / 128) - 1; }

  /// This thread's first row in the tile; the second is 8 further. Cheap: recomputed wherever it is needed.
  __device__ __forceinline__ static int row_in_tile() {
    return static_cast<int>((threadIdx.x - 128) / 32 * 16 + threadIdx.x % 32 / 4);
  }
  /// The slot of the low part, which follows the high part's `slot`.
  __device__ __forceinline__ PipelineState<kTile.stages> second() const {
    PipelineState<kTile.stages> next = slot;
    next.advance();
    return next;
  }
  /// Waits for the low part between wgmmas of the same accumulators, so that the high part's first product does not.
  __device__ __forceinline__ void wait_low() const {
    shared.ring.wait(second());
    ptx::wgmma_fence();
  }
  /// Releases the parts to the producer. The scales are read by plain loads and written by bulk copies: the proxy fence keeps a
  /// lane's arrival behind its loads (docs/log/attention.md).
  __device__ __forceinline__ void release_parts() {
    ptx::fence_async_shared();
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      shared.ring.release(slot.slot);
      slot.advance();
    }
  }
  __device__ __forceinline__ std::uint32_t slot_address(int i) const { return ptx::shared_address(shared.slot(i)); }
  /// This thread's first pair of columns of the scales that came with the high part.
  __device__ __forceinline__ const std::uint16_t* scales() const {
    return shared.scales + slot.slot * S::kScales + 2 * (threadIdx.x % 4);
  }

  /// S of the current tile, times the keys' scales.
  template <class Load>
  __device__ __forceinline__ void multiply_keys(float (&scores)[kKeys / 2], const Load& load_mask) {
    const std::uint32_t rows = ptx::shared_address(shared.queries) + warp_uniform(warpgroup()) * 64 * Tile::kBlockBytes;
    const auto query_high = S::Query::descriptor_low(rows), query_low = S::Query::descriptor_low(rows + S::kQueryPart);
    shared.ring.wait(slot);
    const auto key_high = S::Key::descriptor_low(slot_address(slot.slot)),
               key_low = S::Key::descriptor_low(slot_address(second().slot));
    ptx::wgmma_pin(scores);
    ptx::wgmma_fence();
    const auto multiply = [&](std::uint32_t q, std::uint32_t k, bool first) {
#pragma unroll
      for (int step = 0; step < kTile.head_size / 16; ++step)
        ptx::Wgmma<half, true, true>::mma(
            scores, S::Query::descriptor(q, step / 4 * S::kQueryBlock + step % 4 * S::Query::kStepBytes),
            S::Key::descriptor(k, step / 4 * S::kKeyBlock + step % 4 * S::Key::kStepBytes), !first || step != 0);
    };
    if constexpr (kParts == 2) {
      multiply(query_low, key_high, true);
      wait_low();
      multiply(query_high, key_low, false);
    }
    multiply(query_high, key_high, kParts == 1);
    ptx::wgmma_commit();
    load_mask();
    ptx::wgmma_wait<0>();
    ptx::wgmma_pin(scores);
    const std::uint16_t* const pairs = scales();
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      const float2 scale = load_scales(pairs + 8 * j);
#pragma unroll
      for (int h = 0; h < 2; ++h) scores[4 * j + 2 * h] *= scale.x, scores[4 * j + 2 * h + 1] *= scale.y;
    }
    release_parts();
  }

  /// The warpgroups take turns at the exponentials (Turns of wgmma/consumer.cuh, without a register).
  __device__ __forceinline__ static void wait_turn() { ptx::named_barrier_sync(kTurnBarrier + warpgroup(), 256); }
  /// Passes the turn when the exponentials in `sum` are computed.
  __device__ __forceinline__ static void pass_turn(float sum) {
    const int next = kTile.consumers == 2 ? 1 - warpgroup() : warpgroup() == kTile.consumers - 1 ? 0 : warpgroup() + 1;
    ptx::named_barrier_arrive_after(sum, kTurnBarrier + next, 256);
  }

  __device__ __forceinline__ void mask_scores(float (&scores)[kKeys / 2], int item, const Walk& walk, Mask& mask) const {
    if constexpr (kMasking == Masking::additive) {
      constexpr int kAtATime = kMaskByQuarters ? kKeys / 8 : kKeys / 2;
#pragma unroll
      for (int first = 0; first < kKeys / 2; first += kAtATime) {
        if (kMaskByQuarters) mask.load(g, 4 * walk.n + first / kAtATime, walk.on_mask(), !walk.on_edge());
#pragma unroll
        for (int i = 0; i < kAtATime; ++i) scores[first + i] = fmaf(scores[first + i], row_scale[i / 2 % 2], mask.values[i]);
      }
    } else if (walk.on_mask()) {
      mask.apply(scores, g);
    }
    if (walk.on_edge()) {  // rare: recomputed, so that it does not occupy registers
      const RowTile tile(g, item);
      mask_edges<kKeys>(scores, walk.n * kKeys, RowLimits(g, tile.bounds(g), tile.row + row_in_tile()));
    }
  }

  using Weights = std::uint32_t[kKeys / 16][4];  ///< one part, as A operands

  /// O = O factor + P V, kColumns columns at a time: fewer if a mask takes registers. `weights`: the parts, high first.
  __device__ __forceinline__ void multiply_values(Weights (&weights)[kParts]) {
    constexpr int kColumns = kTile.value_size > 128 || (kMasking != Masking::edges && kParts == 2) ? 64 : kTile.value_size;
    shared.ring.wait(slot);
    const auto value_high = S::Value::descriptor_low(slot_address(slot.slot)),
               value_low = S::Value::descriptor_low(slot_address(second().slot));
    const std::uint16_t* const pairs = scales();
#pragma unroll
    for (int first = 0; first < kTile.value_size; first += kColumns) {
      float part[kColumns / 2];
      ptx::wgmma_pin(part);
#pragma unroll
      for (int step = 0; step < kKeys / 16; ++step)
#pragma unroll
        for (Weights& part_of : weights) ptx::wgmma_pin(part_of[step]);
      ptx::wgmma_fence();
      const auto multiply = [&](const Weights& p, std::uint32_t v, bool fresh) {
#pragma unroll
        for (int step = 0; step < kKeys / 16; ++step)
          ptx::WgmmaRegisters<half, false>::mma(part, p[step],
                                                S::Value::descriptor(v, first / 64 * S::kKeyBlock + step * S::Value::kStepBytes),
                                                !fresh || step != 0);
      };
      if constexpr (kParts == 2) {
        multiply(weights[1], value_high, true);
        if (first == 0) wait_low();
        multiply(weights[0], value_low, false);
      }
      multiply(weights[0], value_high, kParts == 1);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(part);
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        const float2 scale = load_scales(pairs + first + 8 * j);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          float* const output = outputs + first / 2 + 4 * j + 2 * h;
          output[0] = fmaf(part[4 * j + 2 * h], scale.x, output[0] * softmax.factor[h]);
          output[1] = fmaf(part[4 * j + 2 * h + 1], scale.y, output[1] * softmax.factor[h]);
        }
      }
    }
    release_parts();
  }

  /// The queries have been used: the producer may load the next tile's.
  __device__ __forceinline__ void release_query() {
    __syncwarp();  // without keys nothing else has converged the warp: a late lane could miss the phase
    if (threadIdx.x % 32 == 0) shared.query_slots.release(query.slot);
    query.advance();
  }

  __device__ __forceinline__ void step(int item, const Walk& walk, Mask& mask) {
    float scores[kKeys / 2];
    multiply_keys(scores, [&] {
      if constexpr (!kMaskByQuarters) mask.load(g, walk.n, walk.on_mask(), !walk.on_edge());
    });
    if (kReleasesEarly && walk.n == walk.begin) release_query();
    mask_scores(scores, item, walk, mask);
    const float scale_log2[2] = {kMasking == Masking::additive ? kLog2E : row_scale[0],
                                 kMasking == Masking::additive ? kLog2E : row_scale[1]};
    softmax.raise_maximum(scores, scale_log2);
    wait_turn();
    const float base[2] = {softmax_base(softmax.maximum[0]), softmax_base(softmax.maximum[1])};
    softmax.exponentiate(scores, [&](float score, int h) { return scaled_weight<kParts>(score, base[h], scale_log2[h]); });
    pass_turn(softmax.sum[0] + softmax.sum[1]);
    Weights weights[kParts];
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      if constexpr (kParts == 2)
        split_pair(scores[2 * i], scores[2 * i + 1], weights[0][i / 4][i % 4], weights[1][i / 4][i % 4]);
      else
        weights[0][i / 4][i % 4] = pack_pair<half>(scores[2 * i], scores[2 * i + 1]);
    }
    multiply_values(weights);
  }

  __device__ __forceinline__ void store(int item) { finish_rows<kMasking>(g, RowTile(g, item), softmax, outputs, row_in_tile()); }

  __device__ __forceinline__ void run() {
    if (warpgroup() == kTile.consumers - 1) pass_turn(0);
    for (SplitItems item(g); item.valid(); item.next()) {
      const RowTile tile(g, item.index);
      Walk walk(g, tile);
      const int rows[2] = {tile.row + row_in_tile(), tile.row + row_in_tile() + 8};
      Mask mask(g, tile, rows, kTile.rows());
#pragma unroll 1
      for (int h = 0; h < 2; ++h) {
        const float scale = query_scale(g, tile, tile.row + row_in_tile() + 8 * h) *
                            ((kMasking == Masking::additive ? g.score_scale : g.scale_log2) * g.correction);
        (h == 0 ? row_scale[0] : row_scale[1]) = scale;
      }
      softmax = {};
#pragma unroll
      for (float& output : outputs) output = 0;

      shared.query_slots.wait(query);
#pragma unroll 1
      for (; walk.valid(); walk.next()) step(item.index, walk, mask);
      if (!kReleasesEarly || !Walk(g, tile).valid()) release_query();
      store(item.index);
    }
    if (warpgroup() == 0) wait_turn();
  }
};

}  // namespace xgemm::attention
