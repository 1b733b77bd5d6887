// Softmax of short rows that are not whole 16-byte vectors, in registers of 1 to 32 lanes.
//
// A row is read and written as the aligned 16-byte blocks that hold it; nothing is shifted. Each thread has a partial sum for
// each place within a block. Before these are joined they are rotated by the row's misalignment, so the order of additions does
// not depend on the row's address.
// Layouts: rows of stride 1 at any address; output contiguous, of the input's dtype; stored by elements where input and output
//   have different misalignments. Limits: rows of at least a vector's elements and at most 32 x kOddSteps blocks.
// Architectures: sm_80 and later. Floor: one read, one write. 16-bit elements stay packed; their exp is computed twice.
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// A lane's sum. Before, sums[i] of lane l becomes that of elements (l * kWidth + i) modulo a step of all lanes.
template <class V, int kWidth>
__device__ __forceinline__ V rotated_sum(V (&sums)[kWidth], int head, int lane, int lanes) {
#pragma unroll
  for (int bit = kWidth / 2; bit > 0; bit /= 2) {
    V next[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      next[i] = i + bit < kWidth ? sums[(i + bit) % kWidth] : __shfl_sync(kFullWarp, sums[(i + bit) % kWidth], lane + 1, lanes);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = head & bit ? next[i] : sums[i];
  }
#pragma unroll
  for (int half = kWidth / 2; half > 0; half /= 2) {
#pragma unroll
    for (int i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
  }
  return sums[0];
}

/// Stores elements `head` to `end` of a row's blocks. alike: the output has the input's misalignment. holds_last: this thread
/// has an incomplete last block.
template <class T, int kUnits>
__device__ __forceinline__ void store_blocks(Unit<T> (&x)[kOddSteps][kUnits], T* y_row, bool alike, bool holds_last,
                                             const Place& place, int head, int end) {
  constexpr int kWidth = Pack<T>::kCount;
  using U = Unit<T>;
  const int lanes = place.lanes, lane = place.lane, cut = end % kWidth;
  // If two rows of this warp share a block, the first row stores it and gets the second row's part.
  const int me = static_cast<int>(threadIdx.x) % kWarpSize, next = (me | (lanes - 1)) + 1;
  const unsigned rows_alike = __ballot_sync(kFullWarp, alike);
  const bool given = alike && head != 0 && me >= lanes && (rows_alike >> (me - lanes) & 1) != 0;
  const bool taken = alike && cut != 0 && next < kWarpSize && (rows_alike >> next & 1) != 0;
  if (given && lane == 0) keep<T>(x[0], head, kWidth, U{0});
  U others[kUnits];
#pragma unroll
  for (int u = 0; u < kUnits; ++u) others[u] = __shfl_sync(kFullWarp, x[0][u], next);
  if (taken && holds_last) {
#pragma unroll
    for (int k = 0; k < kOddSteps; ++k) {
      if (k != end / kWidth / lanes) continue;
      keep<T>(x[k], 0, cut, U{0});
#pragma unroll
      for (int u = 0; u < kUnits; ++u) x[k][u] |= others[u];
    }
  }
  // Blocks `from` to `to` are stored whole, the others by elements.
  const int from = head != 0 ? 1 : 0, to = alike ? end / kWidth + (taken ? 1 : 0) : 0;
  T* const p = y_row - head + lane * kWidth;
#pragma unroll
  for (int k = 0; k < kOddSteps; ++k)
    if (lane + k * lanes >= from && lane + k * lanes < to)
      *reinterpret_cast<uint4*>(p + k * lanes * kWidth) = *reinterpret_cast<const uint4*>(x[k]);
  if (alike && (head == 0 || given || lane != 0) && (taken || !holds_last)) return;
#pragma unroll
  for (int k = 0; k < kOddSteps; ++k) {
    const int block = lane + k * lanes;
    if ((block >= from && block < to) || (given && block == 0)) continue;
    const Pack<T> y = as_pack<T>(*reinterpret_cast<const uint4*>(x[k]));
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      if (block * kWidth + i >= head && block * kWidth + i < end) p[k * lanes * kWidth + i] = y.values[i];
  }
}

template <class T>
__global__ void __launch_bounds__(kOddThreads, kOddBlocks)
    softmax_odd_rows(const __grid_constant__ Rows rows, const __grid_constant__ IndexMap map, const T* __restrict__ in,
                     T* __restrict__ out) {
  using V = Value<T>;
  using U = Unit<T>;
  constexpr int kWidth = Pack<T>::kCount, kPer = kUnitCount<T>, kUnits = kWidth / kPer, kSize = static_cast<int>(sizeof(T));
  constexpr bool kInPlace = std::is_same_v<T, V>;  // exp overwrites x
  ptx::grid_release();
  in = ptx::grid_wait(in);
  const Place place(rows.lanes, rows.outer);
  const int lanes = place.lanes, lane = place.lane;
  const T* const x_row = in + (place.exists ? map.offset(place.row) : 0);
  const unsigned shift = misalignment(x_row);
  const char* const q = reinterpret_cast<const char*>(x_row) - shift + lane * 16;

  // The row is elements `head` to `end` of its blocks. Block k of this thread has number lane + k * lanes.
  const int head = static_cast<int>(shift) / kSize, end = place.exists ? head + static_cast<int>(rows.length) : 0;
  // An incomplete last block may be read whole if another row's bytes follow.
  const int cut = end % kWidth;
  const T* const last_end = in + (map.dims > 0 ? (rows.outer - 1) * map.stride[0] : 0) + rows.length;
  const bool safe = map.dims <= 1 && x_row + (rows.length + kWidth - cut) <= last_end;
  const int least = safe ? 1 : kWidth;
  alignas(16) U x[kOddSteps][kUnits];
#pragma unroll
  for (int k = 0; k < kOddSteps; ++k) {
    *reinterpret_cast<uint4*>(x[k]) = nothing16<T>();
    if ((lane + k * lanes) * kWidth + least <= end) *reinterpret_cast<uint4*>(x[k]) = load_aligned16(q + k * lanes * 16);
  }
  const bool holds_last = cut != 0 && end / kWidth % lanes == lane;
  if (holds_last) {
    const int last = end / kWidth / lanes;
    uint4 front;
    if (!safe) front = load_front<T>(q + last * lanes * 16, static_cast<unsigned>(cut * kSize));
#pragma unroll
    for (int k = 0; k < kOddSteps; ++k)
      if (k == last) {
        if (!safe) *reinterpret_cast<uint4*>(x[k]) = front;
        keep<T>(x[k], 0, cut, nothing<T>());
      }
  }
  if (lane == 0 && head != 0) keep<T>(x[0], head, kWidth, nothing<T>());

  const V m = place.largest(largest_of<T>(x), static_cast<V*>(nullptr));
  const Exponentials<T, V> exponential(m, false);
  V sums[kWidth] = {};
  add_exponentials<T, T>(x, rows.steps, m, rows.log, sums);
  const V d = reduce_lanes(rotated_sum(sums, head, lane, lanes), min(lanes, kWarpSize), [](V a, V b) { return a + b; });

  const auto finish = [&](auto result) {
#pragma unroll
    for (int k = 0; k < kOddSteps; ++k) {
      if (k >= rows.steps) continue;
      Pack<T> y;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) y.values[i] = convert<T>(result(element<T>(x[k][i / kPer], i % kPer)));
      *reinterpret_cast<uint4*>(x[k]) = as_raw(y);
    }
  };
  if (rows.log) {
    const V log_d = log(d);
    finish([&](V v) { return v - m - log_d; });
  } else {
    const V r = reciprocal<T>(d);
    finish([&](V v) { return divide<T>(kInPlace ? v : exponential(v), d, r); });
  }

  T* const y_row = out + (place.exists ? place.row * rows.length : 0);
  store_blocks(x, y_row, place.exists && misalignment(y_row) == shift, holds_last, place, head, end);
}

void launch_odd_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch_floating(plan.in, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) < 8)
      enqueue(softmax_odd_rows<T>, grid_of(plan), stream, rows_of(plan), plan.kept, static_cast<const T*>(in),
              static_cast<T*>(out));
  });
}

}  // namespace xgemm::softmax
