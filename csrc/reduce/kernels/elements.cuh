// Reduces short rows whose elements are not neighbours, and small tiles of columns, one element at a time: 1 to 256
// neighbouring lanes per row.
//
// Layouts: any strides. A lane adds elements lane, lane + lanes, ... in order, eight as a tree; then a warp's lanes are joined,
//   then a row's warps.
// Architectures: sm_80 and later. Limits: IndexMap's dims.
// Floor: the sectors that hold an element, read once. Such problems are mostly a launch and one latency, so the kernel is short.
#pragma once
#include "device/ptx/grid.cuh"
#include "reduce/kernels/common.cuh"

namespace xgemm::reduce {

/// Every `step`-th element of a row of one or two reduced dims, as offsets: without a division each.
class Walk {
 public:
  __device__ __forceinline__ Walk(const IndexMap& map, int first, int step)
      : outer_(map.dims > 1 ? map.stride[0] : 0), inner_(map.dims > 1 ? map.stride[1] : map.stride[0]) {
    if (map.dims > 1) {
      size_ = static_cast<int>(map.size[1].divisor);
      index_ = static_cast<int>(map.size[1].divide(first));
      whole_ = static_cast<int>(map.size[1].divide(step));
    }
    rest_ = map.dims > 1 ? first - index_ * size_ : first;
    part_ = map.dims > 1 ? step - whole_ * size_ : step;
  }
  __device__ __forceinline__ std::int64_t next() {
    const std::int64_t offset = index_ * outer_ + rest_ * inner_;
    rest_ += part_;
    index_ += whole_;
    if (rest_ >= size_) {
      rest_ -= size_;
      ++index_;
    }
    return offset;
  }

 private:
  std::int64_t outer_, inner_;
  int size_ = INT32_MAX, index_ = 0, whole_ = 0, rest_, part_;
};

/// Operators without Extra, on values: Op<float> reads fp16 and bf16 too.
template <class Op>
__global__ void __launch_bounds__(kElementThreads, sizeof(typename Op::V) == 8 ? 2 : 4)
    reduce_elements(const __grid_constant__ ElementPlan plan, const void* __restrict__ in, void* __restrict__ out) {
  using V = typename Op::V;
  using State = typename Op::State;
  constexpr int kAhead = kTree;
  __shared__ State warps[kElementThreads / kWarpSize];
  const Convert<V> convert(plan);
  const int lanes = static_cast<int>(blockDim.x), lane = static_cast<int>(threadIdx.x), length = static_cast<int>(plan.length);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * plan.rows + threadIdx.y;
  const bool exists = row < plan.outputs;
  const IndexMap::Pair at = exists ? plan.kept.offsets(row) : IndexMap::Pair{0, 0};
  const bool few_dims = plan.reduced.dims <= 2;
  Walk walk(plan.reduced, lane, lanes);
  ptx::grid_release();
  in = ptx::grid_wait(in);

  typename Op::Local s = Op::start();
  for (int e = lane; exists && e < length; e += kAhead * lanes) {
    std::int64_t offset[kAhead];
    if (few_dims) {
#pragma unroll
      for (int j = 0; j < kAhead; ++j) offset[j] = walk.next();
    } else {
      find_offsets(offset, plan.reduced, e, lanes);
    }
    const auto is_there = [&](int j) { return e + j * lanes < length; };
    V x[kAhead];
    load_values(plan.in, in, x, [&](int j) { return at.in + offset[j]; }, is_there);
    push_tree<Op>(convert, s, x, e, lanes, is_there);
  }
  const auto again = [](uint4(&)[kUnroll], std::uint32_t) {};
  State joined = Op::state(s, convert, min(lanes, kWarpSize), true, 0, again);
  if (lanes > kWarpSize) {
    const int count = lanes / kWarpSize, first = static_cast<int>(threadIdx.y) * count;
    if (lane % kWarpSize == 0) warps[first + lane / kWarpSize] = joined;
    __syncthreads();
    joined = lane < count ? warps[first + lane] : Op::identity();
    each_level(kElementThreads / kWarpSize, [&](int offset) { joined = Op::merge(joined, Op::shuffle(joined, offset)); });
  }
  if (exists && lane == 0) Op::finish(plan, convert, joined, typename Op::Extra{}, out, at.out);
}

}  // namespace xgemm::reduce
