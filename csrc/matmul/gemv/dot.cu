// fp32 products with at most kGemvLines rows or columns whose large operand is contiguous along k: warps along the lines (sm_80
// and later). One launch, no workspace. k and CTAs under 2^31; any batch.
//
//   With few rows, w is B and its lines are columns; with few columns, w is A and its lines are rows; x is the other operand,
//   of any strides.
//   Group   dot_lanes(k) lanes, or dot_warps(lines, k) warps, multiply kLines lines of w at a time by all of x.
//   Lane    quads of k, a group's lanes apart: 16-byte loads of w that bypass L1, kAhead per line in flight; x comes from L1, or
//           from shared memory where it is not along k. If lines of w are unaligned, a lane's "quad" is four elements, a group's
//           lanes apart, so that a warp's loads of 4 bytes are neighbours.
//   Order   quad q of k belongs to lane q % lanes of warp q / lanes % warps, which adds its quads' elements i = 0..3 to sum i, in
//           order of q, kChain of them at a time; (0 + 1) + (2 + 3), a butterfly over the lanes, the warps in order. It depends
//           on N, K and whether w is aligned; where K is too long for shared memory to hold x (dot_stages), also on whether x is
//           along k and aligned.
//   Error   compensated.cuh: rounding errors of the last additions are kept, for a short K those of the first quad, and for one
//           in lines of less than a warp those of all.
//
// Floor: bytes of w once. In flight: kLines * kAhead * 512 bytes per warp; 4.3 TB/s needs 32 KiB per SM.
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/gemv/compensated.cuh"
#include "matmul/gemv/plan.h"
#include "matmul/launch.h"

namespace xgemm::matmul {

struct DotArguments {
  Problem problem;
  bool stream_b;   ///< few rows: w is B (else few columns: w is A)
  int lanes;       ///< of a line: less than a warp's only with Exact::all
  int warps;       ///< per group
  int pitch;       ///< floats of a line of x in shared memory
  unsigned tiles;  ///< blocks per batch
};

namespace dot {

/// Below kExact, a sum may have so few products that each one's rounding shows; below kJoins, that of the lanes' and warps'
/// sums.
inline constexpr std::int64_t kExact = 768, kJoins = 2048;

/// Products that a lane adds one after another, before their sum joins the lane's sum of earlier ones.
inline constexpr int kChain = 32;

/// How a quad is loaded: one aligned access (whole quads only); elements a group's lanes apart, one at a time (any strides).
enum class Loads { vectors, strided };

/// Products whose rounding error is kept: none, those of a lane's first quad if K is below kExact, all for K up to kDotShort.
enum class Exact { none, first, all };

/// Quads of each line that a lane has in flight (measured, docs/log/matmul.md). Single elements: few, to save registers.
template <int kX, int kLines, Loads kLoads>
inline constexpr int kAhead = kLoads == Loads::strided && kX > 1 ? 4 / kLines
                              : kX != 2 && kLines == 2           ? 2
                                                                 : 4;

/// The branch for a first quad costs registers and time with several lines of x; elsewhere its kernel does for any longer K.
template <int kX, Loads kLoads, bool kStaged>
inline constexpr bool kAnyK = kX == 1 || (kLoads == Loads::vectors && kStaged);

/// One line of an operand along k. kWhole: all elements of the quad are in bounds.
template <Loads kLoads>
struct Line {
  const float* data;
  std::int64_t stride;
  int lanes;  ///< strided: how far apart a quad's elements are

  /// For w, which is read once: need not allocate in L1.
  template <bool kWhole>
  __device__ __forceinline__ Vector<float, 4> stream(int quad, [[maybe_unused]] std::int64_t k) const {
    if constexpr (kLoads == Loads::vectors) return stream_vector(data + std::int64_t{4} * quad);
    return load<kWhole>(quad, k);  // four lanes share a sector: L1 has to keep it
  }

  template <bool kWhole>
  __device__ __forceinline__ Vector<float, 4> load(int quad, [[maybe_unused]] std::int64_t k) const {
    const std::int64_t first = std::int64_t{4} * quad;
    if constexpr (kLoads == Loads::vectors) {
      return load_vector<4>(data + first);
    } else {
      const std::int64_t at = first - 3 * (quad % lanes), step = lanes * stride;
      const float* const from = data + at * stride;
      Vector<float, 4> v;
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = kWhole || at + lanes * i < k ? from[i * step] : 0.f;
      return v;
    }
  }
};

/// Adds a lane's first quad of products to zeros, with their rounding errors.
template <int kSums>
__device__ __forceinline__ void add_first(float (&sums)[kSums], float& off, const Vector<float, 4>& x,
                                          const Vector<float, 4>& w) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float& sum = sums[i % kSums];
    if (i < kSums) {
      sum = fmaf(x[i], w[i], 0.f);
      off = plus(off, fmaf(x[i], w[i], -sum));
    } else {
      off = plus(off, add_product(sum, x[i], w[i]));
    }
  }
}

/// Adds a quad of products with their rounding errors; if it is not `here`, 0 * 0.
template <int kSums>
__device__ __forceinline__ void add_exactly(float (&sums)[kSums], float& off, const Vector<float, 4>& x,
                                            const Vector<float, 4>& w, bool here) {
#pragma unroll
  for (int i = 0; i < 4; ++i) off = plus(off, add_product(sums[i % kSums], here ? x[i] : 0.f, here ? w[i] : 0.f));
}

/// A lane's sum.
template <int kSums>
__device__ __forceinline__ Compensated total(const float (&sums)[kSums], float off) {
  Compensated own{sums[0], off};
  if constexpr (kSums == 4) {
    own.add({sums[1], 0});
    own.add(Compensated::of(sums[2], sums[3]));
  }
  return own;
}
/// The same without the rounding errors of these additions.
template <int kSums>
__device__ __forceinline__ float plain_total(const float (&sums)[kSums]) {
  if constexpr (kSums == 4) return plus(plus(sums[0], sums[1]), plus(sums[2], sums[3]));
  return sums[0];
}

}  // namespace dot

/// kStaged: x is copied to shared memory.
template <int kX, int kLines, dot::Loads kLoads, dot::Exact kExact, bool kStaged>
__global__ void __launch_bounds__(32 * kDotMaxWarps, 1) dot_kernel(const __grid_constant__ DotArguments args) {
  using Quad = Vector<float, 4>;
  constexpr int kAhead = dot::kAhead<kX, kLines, kLoads>;
  const Problem& p = args.problem;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  constexpr bool kShort = kExact == dot::Exact::all;
  const int lanes = kShort ? args.lanes : kWarpSize, own_lane = kShort ? lane % lanes : lane;
  const int part = warp % args.warps;
  const int groups = static_cast<int>(blockDim.x) / (kShort ? lanes : kWarpSize * args.warps),
            group = kShort ? static_cast<int>(threadIdx.x) / lanes : warp / args.warps;
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
  dot::Line<kLoads> w[kLines], x[kX];
#pragma unroll
  for (int r = 0; r < kLines; ++r) {
    const std::int64_t line = first_line + group * kLines + r;
    w[r] = {static_cast<const float*>(wo.data) + w_batch + (line < lines ? line : lines - 1) * w_step, 1, lanes};
  }
#pragma unroll
  for (int j = 0; j < kX; ++j)
    x[j] = {static_cast<const float*>(xo.data) + x_batch + (j < x_lines ? j : x_lines - 1) * x_step, x_k, lanes};

  ptx::grid_release();
  ptx::grid_wait();
  if constexpr (kStaged) {
    extern __shared__ __align__(16) float staged[];
    const float* const from = static_cast<const float*>(xo.data) + x_batch;
    for (int i = static_cast<int>(threadIdx.x); i < kX * args.pitch; i += static_cast<int>(blockDim.x)) {
      const int j = i % kX, k = i / kX;
      staged[j * args.pitch + k] = k < p.k ? from[min(j, x_lines - 1) * x_step + k * x_k] : 0.f;
    }
#pragma unroll
    for (int j = 0; j < kX; ++j) x[j] = {staged + j * args.pitch, 1, lanes};
    __syncthreads();
  }
  constexpr bool kStrided = kLoads == dot::Loads::strided;
  constexpr int kSums = kStrided ? 1 : 4;
  float sums[kLines][kX][kSums] = {}, off[kLines][kX] = {}, longer[kLines][kX] = {};
  const int turn = 4 * lanes,  // of k, in a strided quad of all lanes
      quads = kStrided ? static_cast<int>((p.k + turn - 1) / turn * lanes) : static_cast<int>((p.k + 3) / 4);
  const int step = lanes * args.warps, own_first = part * lanes + own_lane;
  const int exact_quad = kExact == dot::Exact::first && p.k < dot::kExact ? own_first : -1;
  const auto add = [&]<bool kWhole>(int quad) {
    constexpr bool kInside = kWhole || kStaged;  // of x
    Quad of_w[kAhead][kLines];
#pragma unroll
    for (int u = 0; u < kAhead; ++u)
#pragma unroll
      for (int r = 0; r < kLines; ++r) {
        // Quads out of bounds repeat the last one: a condition would separate the loads, which must be in flight together.
        of_w[u][r] = w[r].template stream<kWhole>(min(quad + u * step, quads - 1), p.k);
      }
    if constexpr (kShort) {  // one round of loads: those of x are in flight together, too; products out of bounds are 0 * 0
      Quad of_x[kAhead][kX];
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
#pragma unroll
        for (int j = 0; j < kX; ++j) of_x[u][j] = x[j].template load<kInside>(min(quad + u * step, quads - 1), p.k);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) {
        const bool here = kWhole || u == 0 || quad + u * step < quads;
#pragma unroll
        for (int r = 0; r < kLines; ++r)
#pragma unroll
          for (int j = 0; j < kX; ++j) dot::add_exactly(sums[r][j], off[r][j], of_x[u][j], of_w[u][r], here);
      }
    } else {
#pragma unroll
      for (int u = 0; u < kAhead; ++u)
#pragma unroll
        for (int j = 0; j < kX; ++j) {
          const Quad of_x = x[j].template load<kInside>(min(quad + u * step, quads - 1), p.k);
#pragma unroll
          for (int r = 0; r < kLines; ++r) {
            if (kWhole || u == 0 || quad + u * step < quads) {
              if (kExact == dot::Exact::first && u == 0 && quad == exact_quad) {
                dot::add_first(sums[r][j], off[r][j], of_x, of_w[u][r]);
              } else {
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[r][j][i % kSums] = fmaf(of_x[i], of_w[u][r][i], sums[r][j][i % kSums]);
              }
            }
          }
        }
    }
  };
  constexpr bool kLong = kExact == dot::Exact::none || (kExact == dot::Exact::first && dot::kAnyK<kX, kLoads, kStaged>);
  constexpr int kTurns = dot::kChain * kSums / (4 * kAhead);  // of a chain of products
  int quad = own_first, turns = kTurns;
  const auto advance = [&] {
    quad += kAhead * step;
    if (!kLong || --turns > 0) return;
    turns = kTurns;
#pragma unroll
    for (int r = 0; r < kLines; ++r)
#pragma unroll
      for (int j = 0; j < kX; ++j) {
        longer[r][j] = plus(longer[r][j], dot::plain_total(sums[r][j]));
#pragma unroll
        for (float& sum : sums[r][j]) sum = 0;
      }
  };
  if constexpr (kStrided)
    for (; std::int64_t{4} * (quad - own_lane + (kAhead - 1) * step) + turn <= p.k; advance())
      add.template operator()<true>(quad);
  for (; quad < quads; advance()) add.template operator()<false>(quad);

  const auto store = [&](const Compensated& total, int j, std::int64_t line) {
    const Epilogue<float, float> epilogue = batch ? make_epilogue<float, float>(p, batch) : make_epilogue_at<float, float>(p);
    const std::int64_t row = args.stream_b ? j : line, column = args.stream_b ? line : j;
    static_cast<float*>(p.out)[(batch * p.m + row) * p.n + column] = epilogue.exact(total.value(), row, column);
  };
  if constexpr (kShort) {
#pragma unroll
    for (int r = 0; r < kLines; ++r) {
      Compensated own{};  // lane j keeps the sum of x's line j
#pragma unroll
      for (int j = 0; j < kX; ++j) {
        const Compensated sum = warp_sum(dot::total(sums[r][j], off[r][j]), lanes);
        if (own_lane == j) own = sum;
      }
      const std::int64_t line = first_line + group * kLines + r;
      if (own_lane < x_lines && line < lines) store(own, own_lane, line);
    }
    return;
  }
  const bool joins = p.k < dot::kJoins;
  __shared__ Compensated of_warps[kDotMaxWarps][kX][kLines];
#pragma unroll
  for (int j = 0; j < kX; ++j)
#pragma unroll
    for (int r = 0; r < kLines; ++r) {
      Compensated own{};
      if (joins) {
        own = dot::total(sums[r][j], off[r][j]);
        own.add({longer[r][j], 0});
        own = warp_sum(own);
      } else {
        own.sum = plus(longer[r][j], dot::plain_total(sums[r][j]));
        own.sum = warp_reduce(own.sum, [](float a, float b) { return plus(a, b); });
      }
      if (lane == 0) of_warps[warp][j][r] = own;
    }
  __syncthreads();
  const int here = groups * kLines, thread = static_cast<int>(threadIdx.x), j = thread / here;
  const std::int64_t line = first_line + thread % here;
  if (j >= x_lines || line >= lines) return;
  const int of_group = thread % here / kLines, r = thread % here % kLines;
  Compensated total = of_warps[of_group * args.warps][j][r];
  for (int i = 1; i < args.warps; ++i) {
    const Compensated& more = of_warps[of_group * args.warps + i][j][r];
    if (joins)
      total.add(more);
    else
      total.sum = plus(total.sum, more.sum);
  }
  store(total, j, line);
}

namespace {

/// Are quads of k aligned accesses in every line, and wholly in bounds?
bool in_quads(const Problem& p, const OperandLines& x) { return x.k_stride == 1 && has_vectors(p, x, 4); }

template <int kX, int kLines, dot::Loads kLoads, dot::Exact kExact, bool kStaged>
void launch(const Problem& p, cudaStream_t stream) {
  constexpr auto kDot = dot_kernel<kX, kLines, kLoads, kExact, kStaged>;
  const bool stream_b = dot_streams_b(p);
  const std::int64_t lines = stream_b ? p.n : p.m;
  const int warps = dot_warps(lines, p.k), lanes = kExact == dot::Exact::all ? dot_lanes(p.k) : 32;
  const int pitch = kStaged ? static_cast<int>(dot_pitch(p.k)) : 0, staged = 4 * kX * pitch;
  // More lines for each copy of x.
  const int least = staged > 32 * 1024 ? kDotMaxWarps : staged > 4 * 1024 ? 2 * kDotBlockWarps : kDotBlockWarps;
  const int block = std::max(least, warps), groups = block / warps * (32 / lanes);
  const auto tiles = static_cast<unsigned>(ceil_div(lines, std::int64_t{groups * kLines}));
  if constexpr (kStaged) allow_shared<kDot, static_cast<int>(kDotMaxStaged)>();
  enqueue(kDot,
          {.blocks = static_cast<unsigned>(tiles * p.batches),
           .threads = static_cast<unsigned>(32 * block),
           .shared_bytes = static_cast<std::size_t>(staged),
           .early = true},
          stream, DotArguments{p, stream_b, lanes, warps, pitch, tiles});
}

template <int kX, int kLines, dot::Loads kLoads, bool kStaged>
void launch(const Problem& p, cudaStream_t stream) {
  using enum dot::Exact;
  constexpr dot::Exact kLong = dot::kAnyK<kX, kLoads, kStaged> ? first : none;
  p.k <= kDotShort    ? launch<kX, kLines, kLoads, all, kStaged>(p, stream)
  : p.k < dot::kExact ? launch<kX, kLines, kLoads, first, kStaged>(p, stream)
                      : launch<kX, kLines, kLoads, kLong, kStaged>(p, stream);
}

/// A group has two lines of w for several lines of x, or four for up to four if quads are strided.
template <dot::Loads kLoads, bool kStaged>
void launch_for(std::int64_t x_lines, const Problem& p, cudaStream_t stream) {
  x_lines == 1   ? launch<1, 1, kLoads, kStaged>(p, stream)
  : x_lines == 2 ? launch<2, 2, kLoads, kStaged>(p, stream)
                 : launch<4, kLoads == dot::Loads::strided ? 4 : 2, kLoads, kStaged>(p, stream);
}

}  // namespace

void launch_dot(const Problem& p, cudaStream_t stream) {
  const bool stream_b = dot_streams_b(p);
  const OperandLines w = stream_b ? lines_of_b(p) : lines_of_a(p), x = stream_b ? lines_of_a(p) : lines_of_b(p);
  using enum dot::Loads;
  if (in_quads(p, w) && in_quads(p, x))
    launch_for<vectors, false>(x.count, p, stream);
  else if (in_quads(p, w) && dot_stages(p.k))
    launch_for<vectors, true>(x.count, p, stream);
  else if (x.k_stride != 1 && dot_stages(p.k))
    launch_for<strided, true>(x.count, p, stream);
  else
    launch_for<strided, false>(x.count, p, stream);
}

}  // namespace xgemm::matmul
