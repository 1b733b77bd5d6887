// Attention on CUDA cores: from a step's scores to the softmax weights of its keys.
#pragma once
#include "attention/simt/block.cuh"
#include "attention/simt/slabs.cuh"
#include "device/warp.cuh"

namespace xgemm::attention {

/// Distance of row i's and key j's element from `mine`, a thread's first of its own elements of `weights`.
template <SimtTile kTile>
__device__ __forceinline__ constexpr int own(int i, int j) {
  return i * kGroups * kTile.weight_stride() + j * kLanes;
}

/// Soft capping, through the thread's own elements, so that the loop need not be unrolled.
template <SimtTile kTile, class C = Constants<kTile>, class Acc = typename C::Acc>
__device__ __forceinline__ void cap_scores(Acc (&scores)[C::kRows][C::kKeys], Acc cap_scale, Acc* mine) {
#pragma unroll
  for (int i = 0; i < C::kRows; ++i)
#pragma unroll
    for (int j = 0; j < C::kKeys; ++j) mine[own<kTile>(i, j)] = scores[i][j];
#pragma unroll 1
  for (int i = 0; i < C::kRows; ++i)
#pragma unroll 1
    for (int j = 0; j < C::kKeys; ++j) {
      Acc& score = mine[own<kTile>(i, j)];
      score = tanh(score * cap_scale);
    }
#pragma unroll
  for (int i = 0; i < C::kRows; ++i)
#pragma unroll
    for (int j = 0; j < C::kKeys; ++j) scores[i][j] = mine[own<kTile>(i, j)];
}

/// The mask of a step's keys, from `key` on, to the thread's own elements.
template <SimtTile kTile, class C = Constants<kTile>, class Acc = typename C::Acc>
__device__ __forceinline__ void load_mask(const Arguments& a, const Block& b, int key, Acc* mine) {
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  constexpr int kUnroll = kTile.fp64 ? 4 : 1;  // of rare code: as registers and the time to compile ask
  const auto load = [&](auto type) {
    using M = typename decltype(type)::type;
#pragma unroll kUnroll
    for (int i = 0; i < C::kRows; ++i) {
      const int row = i * kGroups + group;
      const M* from = static_cast<const M*>(a.mask.data) + b.mask + (key + lane) * a.mask.column +
                      (row < b.count ? Row(a, b.batch, b.first + row).mask : 0);
#pragma unroll kUnroll
      for (int j = 0; j < C::kKeys; ++j) {
        Acc bias = 0;
        if (row < b.count && key + j * kLanes + lane < a.sk) {
          const M m = from[j * kLanes * a.mask.column];
          if constexpr (std::is_same_v<M, bool>)
            bias = m ? Acc(0) : -Acc(INFINITY);  // added, as SDPA does: a NaN score stays NaN
          else
            bias = convert<Acc>(m);
        }
        mine[own<kTile>(i, j)] = bias;
      }
    }
  };
  if (a.mask_dtype == DType::boolean)
    load(Type<bool>{});
  else if (kTile.fp64 && a.mask_dtype == DType::f32)
    load(Type<float>{});
  else
    with_element_type<Acc>(a.mask_dtype, load);
}

/// The scores of the keys from `key` on are complete: masks them, updates the rows' maxima and sums, scales the outputs and
/// stores the keys' weights to `weights`.
template <SimtTile kTile, class C = Constants<kTile>, class Acc = typename C::Acc>
__device__ __forceinline__ void weigh(Acc (&scores)[C::kRows][C::kKeys], Acc (&output)[C::kRows][C::kColumns], const Arguments& a,
                                      const Block& b, int key, Acc* weights, Acc* maxima, Acc* sums) {
  const int lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  const Acc scale = static_cast<Acc>(a.scale);
  Acc* const mine = weights + group * kTile.weight_stride() + lane;

  __syncwarp();  // the half-warp has read its last weights
  if (a.cap_scale != 0) cap_scores<kTile>(scores, static_cast<Acc>(a.cap_scale), mine);
  if (a.masked) load_mask<kTile>(a, b, key, mine);
  // Are there a row and a key of this step that the row does not see?
  const bool edge = key < b.inner_begin || key + kTile.keys > b.inner_end;
#pragma unroll
  for (int i = 0; i < C::kRows; ++i) {
    const int position = (b.first + i * kGroups + group) / a.group;
    const int begin = edge ? keys_begin(b.bounds, position) - key - lane : 0;
    const auto seen = static_cast<unsigned>(edge ? max(keys_end(b.bounds, position) - keys_begin(b.bounds, position), 0) : 0);
    const Acc before = maxima[i * kGroups];
    Acc largest = before;
#pragma unroll
    for (int j = 0; j < C::kKeys; ++j) {
      const Acc bias = a.masked ? mine[own<kTile>(i, j)] : Acc(0);
      Acc score = fma(scores[i][j], scale, bias);
      if (edge && static_cast<unsigned>(j * kLanes - begin) >= seen) score = -Acc(INFINITY);
      scores[i][j] = score;
      largest = fmax(largest, score);  // fmax drops NaN, which comes back through the sum
    }
    largest = warp_reduce<kLanes>(largest, [](Acc x, Acc y) { return fmax(x, y); });
    const Acc factor = rescale(before, largest), base = anchor(largest);
    Acc sum = 0;
#pragma unroll
    for (int j = 0; j < C::kKeys; ++j) {
      const Acc p = exp_of(scores[i][j] - base);
      mine[own<kTile>(i, j)] = p;
      sum += p;
    }
    sum = warp_reduce<kLanes>(sum, [](Acc x, Acc y) { return x + y; });
    __syncwarp();  // all lanes have read the maximum
    if (lane == 0) maxima[i * kGroups] = largest, sums[i * kGroups] = fma(sums[i * kGroups], factor, sum);
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) output[i][c] *= factor;
  }
  __syncwarp();
}

}  // namespace xgemm::attention
