// Softmax of rows of up to 1 KiB that are whole vectors at aligned addresses, in registers of 1 to 32 lanes: the order of
// softmax_rows with as few instructions as such rows need.
//
// Layouts: evenly spaced rows of stride 1, at most 2^31 - 1 vectors apart, fewer than 2^31 rows; output contiguous. Limits: 32
//   lanes x kShortSteps vectors. Architectures: sm_80 and later.
// Floor: one read, one write. At 4.28 TB/s an SM has 26 issue slots per 16-bit element; softmax_rows takes 25, this kernel 12: it
//   has no CTAs to join and no other layouts, and keeps 16-bit rows' exponentials in registers from the sum to the result.
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

struct ShortRows {
  unsigned outer, pitch;  ///< rows, and vectors from one to the next in the input
  int vectors, lanes;     ///< a row
  bool log;
};

template <class T, class O>
__global__ void __maxnreg__(40)
    softmax_short_rows(const __grid_constant__ ShortRows rows, const T* __restrict__ in, O* __restrict__ out) {
  using V = Value<T>;
  using U = Unit<T>;
  constexpr int kWidth = Pack<T>::kCount, kPer = kUnitCount<T>, kUnits = kWidth / kPer, kSteps = kShortSteps;
  constexpr bool kInPlace = std::is_same_v<T, V>;  // exp overwrites x
  const int lanes = rows.lanes, log2_lanes = 31 - __clz(lanes), lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const unsigned row = blockIdx.x * (blockDim.x >> log2_lanes) + (threadIdx.x >> log2_lanes);
  const int held = row < rows.outer ? rows.vectors - lane : 0;  // vector k is in bounds if k * lanes < held
  const uint4* p = reinterpret_cast<const uint4*>(in) + static_cast<std::uint64_t>(row) * rows.pitch + lane;
  ptx::grid_release();
  p = ptx::grid_wait(p);

  alignas(16) U x[kSteps][kUnits];
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    *reinterpret_cast<uint4*>(x[k]) = nothing16<T>();
    if (k * lanes < held) *reinterpret_cast<uint4*>(x[k]) = __ldcs(p + k * lanes);  // evict-first
  }
  const auto join = [&](V value, auto op) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2)
      if (offset < lanes) value = op(value, __shfl_xor_sync(kFullWarp, value, offset));
    return value;
  };
  const V m = join(largest_of<T>(x), [](V a, V b) { return larger(a, b); });
  const auto total = [&](const V(&sums)[4]) {
    return join((sums[0] + sums[2]) + (sums[1] + sums[3]), [](V a, V b) { return a + b; });
  };
  O* const q =
      out + (static_cast<std::uint64_t>(row) * static_cast<unsigned>(rows.vectors) + static_cast<unsigned>(lane)) * kWidth;
  const auto store = [&](auto result) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k * lanes < held) {
        V y[kWidth];
#pragma unroll
        for (int i = 0; i < kWidth; ++i) y[i] = result(k, i);
        store_aligned<T>(q + k * lanes * kWidth, y);
      }
    }
  };
  V sums[4] = {};
  if (rows.log) {
    add_exponentials<T, O>(x, kSteps, m, true, sums);
    const V log_d = log(total(sums));
    store([&](int k, int i) { return element<T>(x[k][i / kPer], i % kPer) - m - log_d; });
    return;
  }
  const Exponentials<O, V> exponential(m, false);
  V terms[kSteps][kInPlace ? 1 : kWidth] = {};
  if constexpr (kInPlace) {
    add_exponentials<T, O>(x, kSteps, m, false, sums);
  } else {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        terms[k][i] = exponential(element<T>(x[k][i / kPer], i % kPer));
        sums[i % 4] = add(sums[i % 4], terms[k][i]);
      }
    }
  }
  const V d = total(sums), r = reciprocal<O>(d);
  store([&](int k, int i) { return divide<T>(kInPlace ? element<T>(x[k][i / kPer], 0) : terms[k][kInPlace ? 0 : i], d, r); });
}

void launch_short_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, in, out, [&]<class T, class O>(const T* x, O* y) {
    if constexpr (sizeof(T) < 8) {
      const ShortRows rows{static_cast<unsigned>(plan.outer), static_cast<unsigned>(plan.kept.stride[0] / Pack<T>::kCount),
                           static_cast<int>(plan.length / Pack<T>::kCount), plan.lanes, plan.log};
      enqueue(softmax_short_rows<T, O>, grid_of(plan), stream, rows, x, y);
    }
  });
}

}  // namespace xgemm::softmax
