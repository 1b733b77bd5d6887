// What fp32 attention adds to attention/tiles/softmax.cuh: each row has its own scale, and weights are multiplied by 2^15, so
// that two fp16 parts have 22 bits of every weight down to 2^-17, one part 11 bits down to 2^-29.
#pragma once
#include "attention/fp16_split/arguments.h"
#include "attention/tiles/scheduler.cuh"
#include "attention/tiles/softmax.cuh"

namespace xgemm::attention {

inline constexpr float kWeightScale = 0x1p15f, kWeightExponent = 15;

/// Corrects the tensor core's average truncation of a sum (matmul/wgmma/kernel.cuh).
inline constexpr float kTruncation = 1.f + 0x1p-23f;

/// The inverse of the power of two that scales a packed row's queries.
__device__ __forceinline__ float query_scale(const SplitArguments& g, const RowTile& tile, int row) {
  const int pack = static_cast<int>(g.pack.divisor), group = pack * static_cast<int>(g.tile_heads.divisor);
  const int position = position_of(g, g, row), head = tile.head + row - g.pack.divide(row) * pack;
  return __ldcg(g.query_scales + (std::int64_t{tile.batch_of(g.query_steps)} * g.sq + position) * group + head);
}

/// The softmax's factor of a packed row's scores: in natural units, or (log2) in units of log2. Additive masks have been added
/// in natural units.
template <Masking kMasking>
__device__ __forceinline__ float softmax_scale(const SplitArguments& g, const RowTile& tile, int row, bool log2) {
  if constexpr (kMasking == Masking::additive)
    return log2 ? kLog2E : 1.f;
  else
    return query_scale(g, tile, row) * ((log2 ? g.scale_log2 : g.score_scale) * g.correction);
}

/// The weight of a score, times 2^15.
template <int kParts>
__device__ __forceinline__ float scaled_weight(float score, float base, float scale) {
  if constexpr (kParts == 2)
    return exp2_approx((score - base) * scale) * kWeightScale;
  else  // 2^15 by the multiply-add: 2^-20 of a weight
    return exp2_approx(fmaf(score - base, scale, kWeightExponent));
}

/// Splits two numbers into pairs of fp16: high, and the rest.
__device__ __forceinline__ void split_pair(float first, float second, std::uint32_t& high, std::uint32_t& low) {
  const __half2 pair = __floats2half2_rn(first, second);
  const float2 back = __half22float2(pair);
  high = reinterpret_cast<const std::uint32_t&>(pair);
  low = pack_pair<half>(first - back.x, second - back.y);
}

/// Two neighbours of an array of bf16.
__device__ __forceinline__ float2 load_scales(const std::uint16_t* at) {
  return unpack_pair<bf16>(*reinterpret_cast<const std::uint32_t*>(at));
}

}  // namespace xgemm::attention
