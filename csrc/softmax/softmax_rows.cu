// Softmax of rows that stay in registers: 1 to 32 lanes per row, or a block of up to 1024 threads.
//
// Layouts: the row has stride 1, rows lie anywhere; output contiguous; any alignment (which thread holds which element does not
//   depend on it). Limits: 1024 threads x kRowSteps 16-byte vectors. Architectures: sm_80 and later.
// Floor: one read, one write. 16-bit elements stay packed, so that twice the rows fit an SM: their exp is computed twice, which
//   is cheaper than keeping it.
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

/// 1536 threads per SM for plain rows, 1024 for others; without a limit ptxas takes a few registers more.
template <class T, class Map>
inline constexpr int kRowRegisters = std::is_same_v<Map, OneStride> && sizeof(T) < 8 ? 40 : 64;

/// Map = OneStride: each row also starts at a multiple of 16 bytes in input and output and is a multiple of 16 bytes long.
template <class T, class O, class Map>
__global__ void __maxnreg__((kRowRegisters<T, Map>))
    softmax_rows(const __grid_constant__ Rows rows, const __grid_constant__ Map map, const T* __restrict__ in,
                 O* __restrict__ out) {
  using V = Value<T>;
  using U = Unit<T>;
  constexpr int kWidth = Pack<T>::kCount, kPer = kUnitCount<T>, kUnits = kWidth / kPer, kSteps = kRowSteps;
  constexpr bool kPlain = std::is_same_v<Map, OneStride>;
  constexpr bool kInPlace = std::is_same_v<T, V>;  // exp overwrites x
  __shared__ V warps[2][kWarpSize];

  ptx::grid_release();
  in = ptx::grid_wait(in);
  const Place place(rows.lanes, rows.outer);
  const auto& [lanes, lane, row, exists, block] = place;
  const int length = exists ? static_cast<int>(rows.length) : 0, full = length / kWidth, tail = length % kWidth;
  const T* p = in + (exists ? map.offset(row) : 0) + lane * kWidth;

  // Vector k of this thread has number lane + k * lanes in the row; number `full` is the incomplete one.
  alignas(16) U x[kSteps][kUnits];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) *reinterpret_cast<uint4*>(x[k]) = nothing16<T>();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    if (lane + k * lanes >= full) continue;
    if constexpr (kPlain)
      *reinterpret_cast<uint4*>(x[k]) = load_aligned16(p + k * lanes * kWidth);
    else
      *reinterpret_cast<uint4*>(x[k]) = load_shifted16(p + k * lanes * kWidth);
  }
  const bool has_tail = !kPlain && tail > 0 && full % lanes == lane;
  const int tail_step = full / lanes;
  if (has_tail) {
    const uint4 last = load_singles(p + tail_step * lanes * kWidth, tail, nothing16<T>());
#pragma unroll
    for (int k = 0; k < kSteps; ++k)
      if (k == tail_step) *reinterpret_cast<uint4*>(x[k]) = last;
  }

  const V m = place.largest(largest_of<T>(x), warps[0]);
  const Exponentials<O, V> exponential(m, false);
  V sums[4] = {};
  add_exponentials<T, O>(x, rows.steps, m, rows.log, sums);
  const V d = place.sum(sums, warps[1]);

  const V r = rows.log ? V{0} : reciprocal<O>(d), log_d = rows.log ? log(d) : V{0};
  const auto finish = [&](const U(&units)[kUnits], V(&y)[kWidth]) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const V v = element<T>(units[i / kPer], i % kPer);
      if (rows.log)
        y[i] = v - m - log_d;
      else
        y[i] = divide<T>(kInPlace ? v : exponential(v), d, r);
    }
  };
  const int steps = rows.steps;
  O* q = out + (exists ? row * rows.length : 0) + lane * kWidth;
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const bool stored = lane + k * lanes < full;
    if (kPlain ? !stored : k >= steps) continue;
    V y[kWidth];
    finish(x[k], y);
    if constexpr (kPlain)
      store_aligned<T>(q + k * lanes * kWidth, y);
    else
      store_anywhere<T>(q + k * lanes * kWidth, y, stored, min(lanes, kWarpSize));
  }
  if (has_tail) {
    U rest[kUnits];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
        if (k == tail_step) rest[u] = x[k][u];
    }
    V y[kWidth];
    finish(rest, y);
    store_singles(q + tail_step * lanes * kWidth, y, tail);
  }
}

void launch_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, in, out, [&]<class T, class O>(const T* x, O* y) {
    const auto go = [&](auto kernel, const auto& map) { enqueue(kernel, grid_of(plan), stream, rows_of(plan), map, x, y); };
    const bool plain = plan.aligned && plan.kept.dims <= 1 && plan.length % Pack<T>::kCount == 0 && aligned16(in, out);
    if (!plain) return go(softmax_rows<T, O, IndexMap>, plan.kept);
    const std::int64_t stride = plan.kept.stride[0];
    if (sizeof(T) < 8 && plan.steps <= kShortSteps && plan.outer <= INT32_MAX && stride / Pack<T>::kCount <= INT32_MAX)
      return launch_short_rows(plan, in, out, stream);
    go(softmax_rows<T, O, OneStride>, OneStride{stride});
  });
}

}  // namespace xgemm::softmax
