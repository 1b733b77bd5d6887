// Small fp32 products on CUDA cores in one launch: a block's warps share the k of its tile, not the tile.
//
//   out = epilogue(A B), A m x k, B k x n, any strides, any batch.
//
//   Warp    the whole tile, lanes of 8 (4) x 8 sums, of every kSlicedWarps-th step of 16 k: it copies its own steps to a ring of
//           its own (cp.async, 16 bytes where base and strides allow, else 4), so that no barrier is met before the end.
//   Block   adds its warps' sums in shared memory in order; where a cluster shares a tile, each of its blocks does that, then
//           finishes a part of the tile with the others' sums, in the order of their ranks.
//   Order   step s of k belongs to warp s % kSlicedWarps of share s / kSlicedWarps % shares.
//   Shared  an operand that is contiguous along k lies [line][k], else [k][line]; both are read 16 bytes at a time, without bank
//           conflicts: a lane's lines lie apart in the first, in quads in the second.
//   Archs   sm_80 and later (clusters: sm_90). Limits: sizes under 2^31, strides under 2^29.
//
// Floor: 2 m n k flop at 67 TFLOP/s; below 512 a side a launch, one trip to memory and one through shared memory, 3 to 4 us.
#pragma once
#include "device/ptx/cluster.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/vector.cuh"
#include "matmul/kernels/simt.cuh"
#include "matmul/small_plan.h"

namespace xgemm::matmul {

struct SlicedArguments {
  Problem problem;
  bool a_vectors, b_vectors;  ///< quads are aligned accesses, wholly inside or outside
  bool plain;                 ///< nothing but alpha in the epilogue
  int shares;                 ///< the launch's cluster size
  unsigned columns, tiles;    ///< of a batch: tiles a row of tiles, and all
};

namespace sliced {

inline constexpr int kWarps = kSlicedWarps, kDepth = kSlicedDepth, kThreads = 32 * kWarps;

/// base + index * stride (bytes) in one instruction: the compiler takes six where it has seen the stride widened.
__device__ __forceinline__ const float* at(const float* base, int index, int stride) {
  const float* place;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(place) : "r"(index), "r"(stride), "l"(base));
  return place;
}

/// A warp's step of one operand: kLines by kDepth, kLanes of the warp along the lines.
template <int kLines, int kLanes, bool kAlongK>
struct Panel {
  static constexpr int kPitch = kAlongK ? kDepth + 4 : kLines, kFloats = kPitch * (kAlongK ? kLines : kDepth);
  static constexpr int kOwn = kLines / kLanes;  // lines of a lane

  static __device__ __forceinline__ int line(int lane, int i) {
    return kAlongK ? lane + i * kLanes : (lane + i / 4 * kLanes) * 4 + i % 4;
  }

  /// Strides in bytes. Lines from `lines` on are zero, and so is k from `depth` on.
  static __device__ __forceinline__ void copy(float* panel, const float* from, int line_stride, int k_stride, int lines,
                                              int depth, bool vectors, int lane) {
    asm volatile("" : "+r"(line_stride), "+r"(k_stride));  // else all addresses wait in registers through the main loop
    const auto move = [&]<int kWidth>() {
      // The warp's lanes lie along the contiguous direction, as far as it goes; `rest` of it remain.
      constexpr int kAlong = (kAlongK ? kDepth : kLines) / kWidth, kAcross = kAlongK ? kLines : kDepth;
      constexpr int kLanesAlong = kAlong < 32 ? kAlong : 32, kStep = 32 / kLanesAlong;
      const int across_stride = kAlongK ? line_stride : k_stride, first = lane / kLanesAlong;
      const std::int64_t step = static_cast<std::int64_t>(kStep) * across_stride;
#pragma unroll
      for (int rest = 0; rest < kAlong; rest += kLanesAlong) {
        const int along = (lane % kLanesAlong + rest) * kWidth;
        const float* src = at(at(from, along, kAlongK ? k_stride : line_stride), first, across_stride);
        float* const to = panel + first * kPitch + along;
        const int some = along < (kAlongK ? depth : lines) ? (kAlongK ? lines : depth) - first : 0;
#pragma unroll 8
        for (int i = 0; i < kAcross; i += kStep) {
          cp_async<4 * kWidth>(to + i * kPitch, src, i < some ? 4 * kWidth : 0);
          src = reinterpret_cast<const float*>(reinterpret_cast<const char*>(src) + step);
        }
      }
    };
    if (vectors)
      move.template operator()<4>();
    else
      move.template operator()<1>();
  }

  /// Four k of the lane's lines.
  static __device__ __forceinline__ void read(float (&values)[4][kOwn], const float* panel, int lane, int k) {
    if constexpr (kAlongK) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const auto quad = load_vector<4>(panel + line(lane, i) * kPitch + k);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[j][i] = quad[j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int i = 0; i < kOwn; i += 4) {
          const auto quad = load_vector<4>(panel + (k + j) * kPitch + line(lane, i));
#pragma unroll
          for (int x = 0; x < 4; ++x) values[j][i + x] = quad[x];
        }
    }
  }
};

template <SmallKernel kKernel, bool kAlongKA, bool kAlongKB>
struct Shape {
  static constexpr SlicedTile kTile = info(kKernel);
  using A = Panel<kTile.rows, kTile.lanes, kAlongKA>;
  using B = Panel<kTile.columns, 32 / kTile.lanes, kAlongKB>;
  static constexpr int kSlot = A::kFloats + B::kFloats, kRing = kTile.stages * kSlot;
  static constexpr int kSumPitch = kTile.columns + 4;
  static constexpr int kBytes = 4 * kWarps * kRing;
  static_assert(kTile.rows * kSumPitch <= kRing, "a warp leaves its sums in its own ring");
};

__device__ __forceinline__ Vector<float, 4> load_remote(std::uint32_t address) {
  Vector<float, 4> v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
               : "r"(address)
               : "memory");
  return v;
}

__device__ __forceinline__ void add(Vector<float, 4>& sum, const Vector<float, 4>& x) {
#pragma unroll
  for (int j = 0; j < 4; ++j) sum[j] = plus(sum[j], x[j]);
}

}  // namespace sliced

template <SmallKernel kKernel, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(sliced::kThreads, 1) sliced_gemm(const __grid_constant__ SlicedArguments args) {
  using namespace sliced;
  using Shape = Shape<kKernel, kAlongKA, kAlongKB>;
  using A = typename Shape::A;
  using B = typename Shape::B;
  constexpr SlicedTile kTile = Shape::kTile;
  constexpr int kStages = kTile.stages, kQuads = kTile.columns / 4;
  constexpr int kUnroll = kAlongKA && kAlongKB ? 1 : 2;  // two hide the reads; both operands' quads along k fill the registers
  extern __shared__ __align__(16) float rings[];

  const Problem& p = args.problem;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int shares = args.shares, share = static_cast<int>(blockIdx.x) % shares;
  const unsigned tile_of_all = blockIdx.x / static_cast<unsigned>(shares), batch = tile_of_all / args.tiles,
                 tile = tile_of_all - batch * args.tiles;
  const int row0 = static_cast<int>(tile / args.columns) * kTile.rows,
            col0 = static_cast<int>(tile % args.columns) * kTile.columns;
  const int rows = min(kTile.rows, static_cast<int>(p.m) - row0), columns = min(kTile.columns, static_cast<int>(p.n) - col0);
  const float* const a = static_cast<const float*>(p.a.data) + (batch ? batch_offset(p, p.a, batch) : 0) + row0 * p.a.row_stride;
  const float* const b = static_cast<const float*>(p.b.data) + (batch ? batch_offset(p, p.b, batch) : 0) + col0 * p.b.col_stride;
  const int a_line = 4 * static_cast<int>(p.a.row_stride), a_k = 4 * static_cast<int>(p.a.col_stride);
  const int b_line = 4 * static_cast<int>(p.b.col_stride), b_k = 4 * static_cast<int>(p.b.row_stride);
  const int k_size = static_cast<int>(p.k), chunks = (k_size + kDepth - 1) / kDepth, step = kWarps * shares;
  float* const ring = rings + warp * Shape::kRing;

  int next = share * kWarps + warp;
  const auto start_copy = [&](int slot) {
    if (next < chunks) {
      const int k0 = next * kDepth;
      float* const to = ring + slot * Shape::kSlot;
      A::copy(to, at(a, k0, a_k), a_line, a_k, rows, k_size - k0, args.a_vectors, lane);
      B::copy(to + A::kFloats, at(b, k0, b_k), b_line, b_k, columns, k_size - k0, args.b_vectors, lane);
      next += step;
    }
    cp_async_commit();  // an empty group too: the wait counts groups
  };

  ptx::grid_wait();
  ptx::grid_release();
  for (int slot = 0; slot < kStages - 1; ++slot) start_copy(slot);
  // A reads alike in lanes l and l ^ 1, B in l and l ^ 2: 16-byte reads of a warp then take two passes instead of four.
  static_assert(kTile.lanes == 8 || kTile.lanes == 4);
  const int lane_a = kTile.lanes == 8 ? lane / 2 % 8 : lane / 2 % 2 + lane / 16 * 2;
  const int lane_b = kTile.lanes == 8 ? lane % 2 + lane / 16 * 2 : lane % 2 + lane / 4 % 4 * 2;
  float sums[A::kOwn][B::kOwn] = {};
  int slot = 0;
  for (int chunk = share * kWarps + warp; chunk < chunks; chunk += step) {
    cp_async_wait<kStages - 2>();
    __syncwarp();  // every lane's copies of this step are there, and every lane has read the one that is overwritten next
    const float* const of_a = ring + slot * Shape::kSlot;
#pragma unroll kUnroll
    for (int k = 0; k < kDepth; k += 4) {
      float fa[4][A::kOwn], fb[4][B::kOwn];
      A::read(fa, of_a, lane_a, k);
      B::read(fb, of_a + A::kFloats, lane_b, k);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int r = 0; r < A::kOwn; ++r)
#pragma unroll
          for (int cc = 0; cc < B::kOwn; ++cc) {
            const int c = r % 2 ? B::kOwn - 1 - cc : cc;  // to and fro: the operand at the turn is reused
            sums[r][c] = fmaf(fa[i][r], fb[i][c], sums[r][c]);
          }
    }
    start_copy(slot == 0 ? kStages - 1 : slot - 1);  // after the products, or the first would wait for its issue
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }

  cp_async_wait<0>();
  __syncwarp();
#pragma unroll
  for (int r = 0; r < A::kOwn; ++r) {
    float* const row = ring + A::line(lane_a, r) * Shape::kSumPitch;
    if constexpr (kAlongKB) {
#pragma unroll
      for (int c = 0; c < B::kOwn; ++c) row[B::line(lane_b, c)] = sums[r][c];
    } else {
#pragma unroll
      for (int c = 0; c < B::kOwn; c += 4)
        store_vector(row + B::line(lane_b, c), Vector<float, 4>{{sums[r][c], sums[r][c + 1], sums[r][c + 2], sums[r][c + 3]}});
    }
  }
  __syncthreads();

  const int thread = static_cast<int>(threadIdx.x);
  const auto place = [&](int quad) { return quad / kQuads * Shape::kSumPitch + quad % kQuads * 4; };
  const auto block_sum = [&](int quad) {
    Vector<float, 4> sum = load_vector<4>(rings + place(quad));
#pragma unroll
    for (int w = 1; w < kWarps; ++w) add(sum, load_vector<4>(rings + w * Shape::kRing + place(quad)));
    return sum;
  };
  const auto alpha = static_cast<float>(p.alpha);
  const auto store = [&](int quad, const Vector<float, 4>& sum) {
    const int row = quad / kQuads, column = quad % kQuads * 4, count = columns - column;
    if (row >= rows || count <= 0) return;
    Quad<float> x{{sum[0], sum[1], sum[2], sum[3]}};
    if (args.plain) {  // a path of its own: the other one's code takes long to come
#pragma unroll
      for (float& v : x.v) v = fmaf(alpha, v, 0.f);
    } else {
      const auto epilogue = batch ? make_epilogue<float, float>(p, batch) : make_epilogue_at<float, float>(p);
      x = epilogue.template quad<float>(x, row0 + row, col0 + column, count);
    }
    simt::store_global(static_cast<float*>(p.out) + (static_cast<std::int64_t>(batch) * p.m + row0 + row) * p.n + col0 + column,
                       x, count, p.n);
  };
  if (shares == 1) {
#pragma unroll 1
    for (int quad = thread; quad < kTile.rows * kQuads; quad += kThreads) store(quad, block_sum(quad));
    return;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#pragma unroll 1
  for (int quad = thread; quad < kTile.rows * kQuads; quad += kThreads) store_vector(rings + place(quad), block_sum(quad));
  ptx::cluster_sync();
#pragma unroll 1
  for (int quad = share + thread * shares; quad < kTile.rows * kQuads; quad += kThreads * shares) {
    Vector<float, 4> sum = load_remote(ptx::remote_address(rings + place(quad), 0));
    for (int rank = 1; rank < shares; ++rank)
      add(sum, load_remote(ptx::remote_address(rings + place(quad), static_cast<unsigned>(rank))));
    store(quad, sum);
  }
  ptx::cluster_sync();  // nobody leaves while its sums are read
#endif
}

}  // namespace xgemm::matmul
