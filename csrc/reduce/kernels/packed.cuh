// Reduces short columns of a dense array (groups, length, columns) over the middle dim: groups of few elements, which a CTA reads
// as one piece of memory, 16 bytes a load, and keeps in shared memory as fp32.
//
// Layouts: dense, any address; results contiguous in the same order.
// Order of additions: a lane's elements, `lanes` positions apart, eight as a tree, two by two, the last; then the lanes.
// Architectures: sm_80 and later. Limits: fp32, fp16, bf16; groups of at most kPackedElements elements.
// Floor: every element read once, every result written once. Four instructions an element, some forty a result.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

/// Writes elements [begin, begin + count) as fp32 from `to` on, from aligned blocks; returns where the first one is.
__device__ __forceinline__ const float* load_packed(DType dtype, const void* in, std::int64_t begin, int count, float* to) {
  const int size = dtype == DType::f32 ? 4 : 2, thread = static_cast<int>(threadIdx.x);
  const auto* from = static_cast<const unsigned char*>(in) + begin * size;
  const int skew = static_cast<int>(misalignment(from)), end = skew + count * size;
  from -= skew;
  const auto write = [&](int at, const uint4& raw) {
    if (size == 4) {
      *reinterpret_cast<uint4*>(to + at / 4) = raw;
      return;
    }
    Vector<float, 4> values[2];
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 8; ++i)
      values[i / 4][i % 4] = dtype == DType::f16 ? half_of<half>(words[i / 2], i % 2) : half_of<bf16>(words[i / 2], i % 2);
#pragma unroll
    for (int h = 0; h < 2; ++h) store_vector(to + at / 2 + 4 * h, values[h]);
  };
  const auto is_whole = [&](int at) { return at >= skew && at + 16 <= end; };
#pragma unroll 1
  for (int base = 16 * thread; base < end; base += 16 * kUnroll * kPackedThreads) {
    uint4 raw[kUnroll];
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int at = base + 16 * kPackedThreads * j;
      if (is_whole(at)) raw[j] = load_aligned16(from + at);
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const int at = base + 16 * kPackedThreads * j;
      if (is_whole(at)) write(at, raw[j]);
    }
  }
  // The blocks at both ends.
  const int edge = thread == 0 ? 0 : (end - 1) / 16 * 16;
  if ((thread == 0 || (thread == 1 && edge > 0)) && !is_whole(edge)) {
    Pack<unsigned short> part{};
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (edge + 2 * i >= skew && edge + 2 * i < end)
        part.values[i] = *reinterpret_cast<const unsigned short*>(from + edge + 2 * i);
    write(edge, as_raw(part));
  }
  return to + skew / size;
}

template <class Op>
__global__ void __launch_bounds__(kPackedThreads)
    reduce_packed(const __grid_constant__ PackedPlan plan, const void* __restrict__ in, void* __restrict__ out) {
  __shared__ __align__(16) float staged[kPackedElements + 16];  // and the ends of blocks at both sides
  const Convert<float> convert(plan);
  const int length = static_cast<int>(plan.length), columns = static_cast<int>(plan.by_columns.divisor), lanes = plan.lanes,
            thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1), step = lanes * columns;
  const std::int64_t first = std::int64_t{blockIdx.x} * plan.groups * columns;  // result
  const int results = static_cast<int>(min(plan.outputs - first, std::int64_t{plan.groups} * columns));
  ptx::grid_release();
  in = ptx::grid_wait(in);
  const float* const values = load_packed(plan.in, in, first * length, results * length, staged);
  __syncthreads();
  const auto again = [](uint4(&)[kUnroll], std::uint32_t) {};
  const auto all = [](int) { return true; };
#pragma unroll 1
  for (int r0 = 0; r0 < results; r0 += kPackedThreads / lanes) {
    const int r = r0 + thread / lanes;
    const bool exists = r < results;
    typename Op::Local s = Op::start();
    if (exists) {
      const int group = plan.by_columns.divide(r);
      const float* at = values + group * (length - 1) * columns + r + lane * columns;
      int e = lane;
      const auto add = [&]<int kCount>() {
        for (; e + (kCount - 1) * lanes < length; e += kCount * lanes) {
          float x[kCount];
#pragma unroll
          for (int j = 0; j < kCount; ++j, at += step) x[j] = *at;
          push_tree<Op>(convert, s, x, e, lanes, all);
        }
      };
      add.template operator()<kTree>(), add.template operator()<2>(), add.template operator()<1>();
    }
    const typename Op::State state = Op::state(s, convert, lanes, true, 0, again);
    if (exists && lane == 0) Op::finish(plan, convert, state, typename Op::Extra{}, out, first + r);
  }
}

}  // namespace xgemm::reduce
