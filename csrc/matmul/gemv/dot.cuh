// fp32 products with at most kGemvLines rows or columns whose large operand is contiguous along k: warps along the lines (sm_80
// and later). One launch, no workspace. k and CTAs under 2^31; any batch.
//
//   With few rows, w is B and its lines are columns; with few columns, w is A and its lines are rows; x is the other operand,
//   of any strides.
//   Group   dot_warps(lines, k) warps, or for a short K dot_lanes(k) lanes, multiply kLines lines of w at a time by all of x.
//   Lane    quads of k, a group's lanes apart: 16-byte loads of w that bypass L1, kAhead per line in flight; x comes from L1, by
//           element where its quads are no aligned accesses. Unless those of w are, a lane's "quad" is four elements, a group's
//           lanes apart, so that a warp's loads of 4 bytes are neighbours.
//   Order   quad q of k belongs to lane q % lanes of warp q / lanes % warps, which adds its quads' elements i = 0..3 to sum i
//           (unaligned: all to one), in order of q; (0 + 1) + (2 + 3), a butterfly over the lanes, the warps in order.
//   Error   compensated.cuh: rounding errors of the last additions are kept, for a short K those of all products.
//
// Floor: bytes of w once. In flight: kLines * kAhead * 512 bytes per warp; 4.3 TB/s needs 32 KiB per SM.
#pragma once
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/epilogue/batch.cuh"
#include "matmul/gemv/compensated.cuh"
#include "matmul/gemv/plan.h"

namespace xgemm::matmul {

struct DotArguments {
  Problem problem;
  bool stream_b;   ///< few rows: w is B (else few columns: w is A)
  bool x_quads;    ///< x's quads are aligned accesses
  int lanes;       ///< of a line: less than a warp's only with DotKind::kShort
  int warps;       ///< per group
  unsigned tiles;  ///< blocks per batch
};

/// One instance: for up to kX lines of x. kQuads: those of w are aligned accesses, wholly in bounds; else any alignment. kShort:
/// K is at most kDotShort.
template <int kXLines, bool kQuadLoads, bool kShortK>
struct DotKind {
  static constexpr int kX = kXLines, kLines = kQuadLoads && kX == 4 ? 2 : kX;  ///< lines of x; of w per group
  static constexpr bool kQuads = kQuadLoads, kShort = kShortK;
  /// Quads of each line that a lane has in flight (measured, docs/log/matmul.md). Single elements: few, to save registers.
  static constexpr int kAhead = kX == 1 || (kQuads && kX == 2) ? 4 : kQuads || kX == 2 ? 2 : 1;
  static constexpr int kSums = kQuads ? 4 : 1;                               ///< of a lane, to which a quad's elements are added
  static constexpr int kMostWarps = kShort ? kDotBlockWarps : kDotMaxWarps;  ///< of a block
};

namespace dot {

using Quad = Vector<float, 4>;

/// Below kJoins, rounding of the lanes' and warps' sums may show.
inline constexpr std::int64_t kJoins = 2048;

/// One line of an operand along k.
template <bool kQuads>
struct Line {
  const float* data;
  std::int64_t stride;
  int lanes;     ///< unless kQuads: how far apart a quad's elements are
  bool aligned;  ///< kQuads: are the line's quads aligned accesses?

  /// kOnce: read once, so need not allocate in L1. kWhole: all elements of the quad are in bounds.
  template <bool kOnce, bool kWhole>
  __device__ __forceinline__ Quad load(int quad, [[maybe_unused]] std::int64_t k) const {
    const std::int64_t first = std::int64_t{4} * quad;
    if constexpr (kQuads) {
      if constexpr (kOnce) return stream_vector(data + first);
      if (aligned) return load_vector<4>(data + first);
      return {{data[first * stride], data[(first + 1) * stride], data[(first + 2) * stride], data[(first + 3) * stride]}};
    } else {
      const std::int64_t at = first - 3 * (quad % lanes), step = lanes * stride;
      const float* const from = data + at * stride;
      Quad v;
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = kWhole || at + lanes * i < k ? from[i * step] : 0.f;
      return v;
    }
  }
};

/// A lane's sums, and what short_k keeps of their rounding.
template <class Kind>
struct LaneSums {
  static constexpr int kX = Kind::kX, kLines = Kind::kLines, kSums = Kind::kSums;
  float sums[kLines][kX][kSums] = {}, off[kLines][kX] = {};

  template <bool kWhole>
  __device__ __forceinline__ void add(const Line<Kind::kQuads> (&w)[kLines], const Line<Kind::kQuads> (&x)[kX], int quad,
                                      int step, int quads, std::int64_t k) {
    constexpr int kAhead = Kind::kAhead;
    // Quads out of bounds repeat the last one: a condition would separate the loads, which must be in flight together.
    const auto at = [&](int u) { return min(quad + u * step, quads - 1); };
    const auto here = [&](int u) { return kWhole || u == 0 || quad + u * step < quads; };
    Quad of_w[kAhead][kLines], of_x[Kind::kShort ? kAhead : 1][kX];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int r = 0; r < kLines; ++r) of_w[u][r] = w[r].template load<true, kWhole>(at(u), k);
    if constexpr (Kind::kShort) {  // few rounds of loads: those of x are in flight together, too
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
#pragma unroll
        for (int j = 0; j < kX; ++j) of_x[u][j] = x[j].template load<false, kWhole>(at(u), k);
    }
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int j = 0; j < kX; ++j) {
        if constexpr (!Kind::kShort) of_x[0][j] = x[j].template load<false, kWhole>(at(u), k);
        if (Kind::kShort || here(u)) {
#pragma unroll
          for (int r = 0; r < kLines; ++r)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float& sum = sums[r][j][i % kSums];
              if constexpr (Kind::kShort)  // products out of bounds are 0 * 0
                off[r][j] = plus(off[r][j], add_product(sum, here(u) ? of_x[u][j][i] : 0.f, here(u) ? of_w[u][r][i] : 0.f));
              else
                sum = fmaf(of_x[0][j][i], of_w[u][r][i], sum);
            }
        }
      }
  }
  /// The sum for line r of w and line j of x over `lanes` lanes, in every one of them; `joins`: with the additions' rounding.
  __device__ __forceinline__ Compensated of_lanes(int r, int j, int lanes, bool joins) const {
    const float(&s)[kSums] = sums[r][j];
    Compensated own{s[0], off[r][j]};
    if (joins) {
      if constexpr (kSums == 4) {
        own.add({s[1], 0});
        own.add(Compensated::of(s[2], s[3]));
      }
      return warp_sum(own, lanes);
    }
    if constexpr (kSums == 4) own.sum = plus(plus(s[0], s[1]), plus(s[2], s[3]));
    own.sum = warp_reduce(own.sum, [](float a, float b) { return plus(a, b); });
    return own;
  }
};

/// Adds up the warps' sums of each group and stores them: `store(sum, line of x, line of w)`.
template <class Kind, class Store>
__device__ __forceinline__ void join_warps(const LaneSums<Kind>& sums, bool joins, int warps, int groups, const Store& store) {
  constexpr int kX = Kind::kX, kLines = Kind::kLines;
  __shared__ Compensated of_warps[kDotMaxWarps][kX][kLines];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int j = 0; j < kX; ++j)
#pragma unroll
    for (int r = 0; r < kLines; ++r) {
      const Compensated own = sums.of_lanes(r, j, kWarpSize, joins);
      if (thread % kWarpSize == 0) of_warps[thread / kWarpSize][j][r] = own;
    }
  __syncthreads();
  const int here = groups * kLines, j = thread / here, line = thread % here;
  if (j >= kX) return;
  Compensated total = of_warps[line / kLines * warps][j][line % kLines];
  for (int i = 1; i < warps; ++i) {
    const Compensated& more = of_warps[line / kLines * warps + i][j][line % kLines];
    if (joins)
      total.add(more);
    else
      total.sum = plus(total.sum, more.sum);
  }
  store(total, j, line);
}

}  // namespace dot

template <class Kind>
__global__ void __launch_bounds__(32 * Kind::kMostWarps) dot_kernel(const __grid_constant__ DotArguments args) {
  using Line = dot::Line<Kind::kQuads>;
  constexpr int kX = Kind::kX, kLines = Kind::kLines, kAhead = Kind::kAhead;
  const Problem& p = args.problem;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize, lane = thread % kWarpSize;
  const int lanes = Kind::kShort ? args.lanes : kWarpSize, own_lane = lane % lanes,
            part = Kind::kShort ? 0 : warp % args.warps;  // of a group's warps
  const int groups = static_cast<int>(blockDim.x) / (lanes * (Kind::kShort ? 1 : args.warps)),
            group = Kind::kShort ? thread / lanes : warp / args.warps;
  const unsigned batch = blockIdx.x / args.tiles;
  const std::int64_t first_line = static_cast<std::int64_t>(blockIdx.x % args.tiles) * groups * kLines;
  const std::int64_t lines = args.stream_b ? p.n : p.m;
  const int x_lines = static_cast<int>(args.stream_b ? p.m : p.n);
  const Operand &wo = args.stream_b ? p.b : p.a, &xo = args.stream_b ? p.a : p.b;
  const std::int64_t w_step = args.stream_b ? wo.col_stride : wo.row_stride,
                     x_step = args.stream_b ? xo.row_stride : xo.col_stride;
  [[maybe_unused]] const std::int64_t x_k = args.stream_b ? xo.col_stride : xo.row_stride;

  // Lines out of bounds repeat the last one; their sums are not stored.
  std::int64_t w_batch = 0, x_batch = 0;
  each_batch_dim(p, batch,
                 [&](int d, std::int64_t at) { w_batch += at * wo.batch_stride[d], x_batch += at * xo.batch_stride[d]; });
  Line w[kLines], x[kX];
#pragma unroll
  for (int r = 0; r < kLines; ++r)
    w[r] = {static_cast<const float*>(wo.data) + w_batch + min(first_line + group * kLines + r, lines - 1) * w_step, 1, lanes,
            true};
#pragma unroll
  for (int j = 0; j < kX; ++j)
    x[j] = {static_cast<const float*>(xo.data) + x_batch + min(j, x_lines - 1) * x_step, x_k, lanes, args.x_quads};

  ptx::grid_release();
  ptx::grid_wait();
  dot::LaneSums<Kind> sums;
  const int turn = 4 * lanes,  // of k, in quads of all lanes
      quads = Kind::kQuads ? static_cast<int>(p.k / 4) : static_cast<int>((p.k + turn - 1) / turn * lanes),
            step = lanes * (Kind::kShort ? 1 : args.warps);
  int quad = part * lanes + own_lane;
  if constexpr (!Kind::kQuads)
    for (; std::int64_t{4} * (quad - own_lane + (kAhead - 1) * step) + turn <= p.k; quad += kAhead * step)
      sums.template add<true>(w, x, quad, step, quads, p.k);
  for (; quad < quads; quad += kAhead * step) sums.template add<false>(w, x, quad, step, quads, p.k);

  const auto store = [&](const Compensated& total, int j, int at) {
    const std::int64_t line = first_line + at, row = args.stream_b ? j : line, column = args.stream_b ? line : j;
    if (j >= x_lines || line >= lines) return;
    const Epilogue<float, float> epilogue = batch ? make_epilogue<float, float>(p, batch) : make_epilogue_at<float, float>(p);
    static_cast<float*>(p.out)[(batch * p.m + row) * p.n + column] = epilogue.exact(total.value(), row, column);
  };
  if constexpr (Kind::kShort) {
#pragma unroll
    for (int r = 0; r < kLines; ++r) {
      Compensated own{};  // lane j keeps the sum of x's line j
#pragma unroll
      for (int j = 0; j < kX; ++j) {
        const Compensated sum = sums.of_lanes(r, j, lanes, true);
        if (own_lane == j) own = sum;
      }
      if (own_lane < kX) store(own, own_lane, group * kLines + r);
    }
  } else {
    dot::join_warps(sums, p.k < dot::kJoins, args.warps, groups, store);
  }
}

}  // namespace xgemm::matmul
