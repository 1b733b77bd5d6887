// Softmax of rows of at most kMostTiny elements that are not whole 16-byte vectors, one element an access: few
// instructions, as the time of a small softmax is that of fetching and starting them.
//
// Layouts: rows of stride 1 that lie anywhere, at any address; output contiguous. Lane l of a row's `lanes` holds elements l,
//   l + lanes, ...: which lane holds an element depends on the length alone. Architectures: sm_80 and later.
// Floor: one read, one write.
#pragma once
#include "device/ptx/grid.cuh"
#include "softmax/kernels/common.cuh"

namespace xgemm::softmax {

template <class T, class O, class Map>
__global__ void __launch_bounds__(kTinyThreads)
    softmax_tiny_rows(const __grid_constant__ Rows rows, const __grid_constant__ Map map, const T* __restrict__ in,
                      O* __restrict__ out) {
  using V = Value<T>;
  ptx::grid_release();
  in = ptx::grid_wait(in);
  const Place place(rows.lanes, rows.outer);
  const int lanes = place.lanes, held = place.exists ? static_cast<int>(rows.length) - place.lane : 0;  // of the row, from here
  const T* const p = in + (place.exists ? map.offset(place.row) : 0) + place.lane;
  V x[kTinyElements];
  V m = minus_infinity<V>();
#pragma unroll
  for (int i = 0; i < kTinyElements; ++i) x[i] = i * lanes < held ? convert<V>(p[i * lanes]) : minus_infinity<V>();
#pragma unroll
  for (const V value : x) m = larger(m, value);
  m = join_lanes(m, lanes, [](V a, V b) { return larger(a, b); });

  const Exponentials<O, V> exponential(m, rows.log);
  V terms[kTinyElements], d = 0;
#pragma unroll
  for (int i = 0; i < kTinyElements; ++i) terms[i] = exponential(x[i]), d = add(d, terms[i]);
  d = join_lanes(d, lanes, [](V a, V b) { return a + b; });
  const V r = rows.log ? V{0} : reciprocal<O>(d), log_d = rows.log ? log(d) : V{0};
  O* const q = out + (place.exists ? place.row * rows.length : 0) + place.lane;
#pragma unroll
  for (int i = 0; i < kTinyElements; ++i)
    if (i * lanes < held) q[i * lanes] = convert<O>(rows.log ? x[i] - m - log_d : divide<T>(terms[i], d, r));
}

}  // namespace xgemm::softmax
