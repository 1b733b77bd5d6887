// Small fp32 products in one launch, in fp64 on the tensor cores, by sliced-K: the warps of a CTA share the k of its tile.
//
//   out = epilogue(A B), A m x k, B k x n, any strides under 2^29, any batch; sizes under 2^31. sm_90.
//
//   Warp    computes the whole tile, by mma.sync in fp64, for every kSlicedWarps-th step of 16 k, which it copies to its own
//           ring (cp.async, 16 bytes if base and strides allow, else 4): no barrier before the end.
//   CTA     adds its warps' sums in shared memory in order. CTAs of a cluster that share a tile then finish a part of it each.
//   Order   step s of k belongs to warp s % kSlicedWarps of CTA s / kSlicedWarps % splits of the cluster; the sums of warps,
//           then of CTAs, are added in order.
//   Error   products are exact and sums are fp64's: one rounding to fp32.
//   Shared  [line][k] if the operand is contiguous along k, else [k][line]; both are read 16 bytes at a time, without bank
//           conflicts: the first in groups of eight lines, the second in quads of lines that are swizzled by k.
//
// Floor: 2 m n k flop at 67 TFLOP/s (fp64 on an H200's tensor cores); below 512 a side a launch, one round trip to memory and
// one through shared memory, 3 to 4 us.
#include "device/integer.h"
#include "device/launch.h"
#include "device/mma_f64.cuh"
#include "device/ptx/cluster.cuh"
#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/warp.cuh"
#include "matmul/dispatch.h"
#include "matmul/epilogue/quad.cuh"
#include "matmul/launch.h"
#include "matmul/sliced/plan.h"

namespace xgemm::matmul {

struct SlicedArguments {
  Problem problem;
  bool a_vectors, b_vectors;  ///< quads are aligned accesses, wholly inside or outside
  bool plain;                 ///< nothing but alpha in the epilogue
  bool apart;                 ///< each warp of a smaller CTA computes a tile of its own, for all of k
  int splits;                 ///< the launch's cluster size
  unsigned columns, tiles;    ///< of a batch: tiles per row of tiles, and all
  unsigned all_tiles;         ///< of all batches
};

namespace sliced {

inline constexpr int kWarps = kSlicedWarps, kDepth = kSlicedDepth, kThreads = 32 * kWarps;

/// base + index * stride (bytes) in one instruction: the compiler takes six if it has seen the stride widened.
__device__ __forceinline__ const float* at(const float* base, int index, int stride) {
  const float* place;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(place) : "r"(index), "r"(stride), "l"(base));
  return place;
}

/// A warp's step of one operand: kLines by kDepth. A lane's fragments hold four k of one line in eight, that of its octet: lane
/// / 4 in A and B, 2 * (lane % 4) and the next in columns of C.
template <int kLines, bool kAlongK>
struct Panel {
  static constexpr int kPitch = kAlongK ? kDepth : kLines, kFloats = kLines * kDepth;
  static constexpr int kGroups = kLines / 8;
  using Fragments = double[kGroups][4];

  static __device__ __forceinline__ int line(int octet, int group) {
    return kAlongK ? 8 * group + octet : 32 * (group / 4) + 4 * octet + group % 4;
  }
  /// The index of `line` in the fragments' groups of eight.
  static __device__ __forceinline__ int place(int line) { return kAlongK ? line : 8 * (line / 32 * 4 + line % 4) + line / 4 % 8; }
  /// [k][line]: the swizzled index of a quad of lines. Lanes that read k, k + 4, ... at once have no bank conflicts.
  static __device__ __forceinline__ int quad_of(int quad, int k) { return quad ^ (k / 4 * 2); }

  /// Strides in bytes. Lines from `lines` on are zero, and so is k from `depth` on.
  static __device__ __forceinline__ void copy(float* panel, const float* from, int line_stride, int k_stride, int lines,
                                              int depth, bool vectors, int lane) {
    asm volatile("" : "+r"(line_stride), "+r"(k_stride));  // else all addresses stay in registers through the main loop
    const auto move = [&]<int kWidth>() {
      // The warp's lanes run along the contiguous direction, then across. `rest`: start of a pass along it.
      constexpr int kAlong = (kAlongK ? kDepth : kLines) / kWidth, kAcross = kAlongK ? kLines : kDepth;
      constexpr int kLanesAlong = kAlong < 32 ? kAlong : 32, kStep = 32 / kLanesAlong;
      const int across_stride = kAlongK ? line_stride : k_stride, first = lane / kLanesAlong;
      const std::int64_t step = static_cast<std::int64_t>(kStep) * across_stride;
#pragma unroll
      for (int rest = 0; rest < kAlong; rest += kLanesAlong) {
        const int along = (lane % kLanesAlong + rest) * kWidth;
        const float* src = at(at(from, along, kAlongK ? k_stride : line_stride), first, across_stride);
        const int some = along < (kAlongK ? depth : lines) ? (kAlongK ? lines : depth) - first : 0;
#pragma unroll 8
        for (int i = 0; i < kAcross; i += kStep) {
          const int place = kAlongK ? along : quad_of(along / 4, first + i) * 4 + along % 4;
          cp_async<4 * kWidth>(panel + (first + i) * kPitch + place, src, i < some ? 4 * kWidth : 0);
          src = reinterpret_cast<const float*>(reinterpret_cast<const char*>(src) + step);
        }
      }
    };
    if (vectors)
      move.template operator()<4>();
    else
      move.template operator()<1>();
  }

  /// k = 4 * (lane % 4) + i of the octet's lines.
  static __device__ __forceinline__ void read(Fragments& values, const float* panel, int lane) {
    const int octet = lane / 4, k = lane % 4 * 4;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {  // a quad: k of a line, or lines of a k
      const auto quad = load_vector<4>(
          panel + (kAlongK ? line(octet, i) * kPitch + k : (k + i % 4) * kPitch + quad_of(8 * (i / 4) + octet, k) * 4));
#pragma unroll
      for (int j = 0; j < 4; ++j) values[kAlongK ? i : i / 4 * 4 + j][kAlongK ? j : i % 4] = static_cast<double>(quad[j]);
    }
  }
};

template <SlicedTile kSliced, bool kAlongKA, bool kAlongKB>
struct Shape {
  static constexpr TileInfo kTile = info(kSliced);
  static constexpr int kStages = kSliced == SlicedTile::t32x32 ? 4 : 3;  // slots of a warp's ring
  using A = Panel<kTile.m, kAlongKA>;
  using B = Panel<kTile.n, kAlongKB>;
  static constexpr int kSlot = A::kFloats + B::kFloats, kRing = kStages * kSlot;
  static constexpr int kSumPitch = kTile.n + 8;  // doubles: no bank conflicts
  static constexpr int kBytes = 4 * kWarps * kRing;
  static_assert(2 * kTile.m * kSumPitch <= kRing, "a warp leaves its sums in its own ring");
};

using Sums = Quad<double>;

__device__ __forceinline__ Sums load_remote(std::uint32_t address) {
  Sums x;
#pragma unroll
  for (int j = 0; j < 4; j += 2)
    asm volatile("ld.shared::cluster.v2.f64 {%0, %1}, [%2];"
                 : "=d"(x.v[j]), "=d"(x.v[j + 1])
                 : "r"(address + static_cast<unsigned>(8 * j))
                 : "memory");
  return x;
}

__device__ __forceinline__ void add(Sums& sum, const Sums& x) {
#pragma unroll
  for (int j = 0; j < 4; ++j) sum.v[j] += x.v[j];
}

/// A tile's place in C, and its rows and columns in bounds.
struct Tile {
  unsigned batch;
  int row0, col0, rows, columns;
};

/// Adds the warps' and the cluster's sums and stores C. own_sums: this warp's.
template <class Shape, bool kAlongKB>
__device__ __forceinline__ void finish(const SlicedArguments& args, const Tile& tile, float* rings, const double* own_sums,
                                       int split) {
  constexpr int kQuads = Shape::kTile.n / 4, kAllQuads = Shape::kTile.m * kQuads;
  const Problem& p = args.problem;
  const int splits = args.splits, lane = static_cast<int>(threadIdx.x) % 32;
  const int thread = static_cast<int>(threadIdx.x);
  double* const of_warps = reinterpret_cast<double*>(rings);
  const auto place = [&](int quad) {
    return Shape::A::place(quad / kQuads) * Shape::kSumPitch + Shape::B::place(quad % kQuads * 4);
  };
  constexpr int kNext = kAlongKB ? 1 : 8;  // from one element of a quad to the next
  const auto warp_sum = [](const double* from) {
    if constexpr (kAlongKB) return load_quad(from);
    return Sums{{from[0], from[kNext], from[2 * kNext], from[3 * kNext]}};
  };
  const auto block_sum = [&](int quad) {
    Sums sum = warp_sum(of_warps + place(quad));
#pragma unroll
    for (int w = 1; w < kWarps; ++w) add(sum, warp_sum(of_warps + w * (Shape::kRing / 2) + place(quad)));
    return sum;
  };
  const auto store = [&](int quad, const Sums& sum) {
    const int row = quad / kQuads, column = quad % kQuads * 4, count = tile.columns - column;
    if (row >= tile.rows || count <= 0) return;
    Quad<float> x{
        {static_cast<float>(sum.v[0]), static_cast<float>(sum.v[1]), static_cast<float>(sum.v[2]), static_cast<float>(sum.v[3])}};
    x = finished_quad(p, args.plain, static_cast<int>(tile.batch), tile.row0 + row, tile.col0 + column, x, count);
    store_row_quad(
        static_cast<float*>(p.out) + (static_cast<std::int64_t>(tile.batch) * p.m + tile.row0 + row) * p.n + tile.col0 + column,
        x, count, p.n);
  };
  if (args.apart) {
#pragma unroll 1
    for (int quad = lane; quad < kAllQuads; quad += 32) store(quad, warp_sum(own_sums + place(quad)));
    return;
  }
  if (splits == 1) {
#pragma unroll 1
    for (int quad = thread; quad < kAllQuads; quad += kThreads) store(quad, block_sum(quad));
    return;
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kOwnQuads = kAllQuads / kThreads;
  Sums own[kOwnQuads];
#pragma unroll
  for (int i = 0; i < kOwnQuads; ++i) own[i] = block_sum(thread + i * kThreads);
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kOwnQuads; ++i) store_quad(of_warps + 4 * (thread + i * kThreads), own[i]);
  ptx::cluster_sync();
#pragma unroll 1
  for (int quad = split + thread * splits; quad < kAllQuads; quad += kThreads * splits) {
    Sums sum = load_remote(ptx::remote_address(of_warps + 4 * quad, 0));
    for (int rank = 1; rank < splits; ++rank)
      add(sum, load_remote(ptx::remote_address(of_warps + 4 * quad, static_cast<unsigned>(rank))));
    store(quad, sum);
  }
  ptx::cluster_sync();  // no CTA exits while its sums are read
#endif
}

}  // namespace sliced

template <SlicedTile kSliced, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(sliced::kThreads, 1) sliced_gemm(const __grid_constant__ SlicedArguments args) {
  using namespace sliced;
  using Shape = Shape<kSliced, kAlongKA, kAlongKB>;
  using A = typename Shape::A;
  using B = typename Shape::B;
  constexpr TileInfo kTile = Shape::kTile;
  constexpr int kStages = Shape::kStages;
  extern __shared__ __align__(16) float rings[];

  const Problem& p = args.problem;
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
  const int splits = args.splits, split = static_cast<int>(blockIdx.x) % splits;
  const unsigned tile_of_all =
      args.apart ? blockIdx.x * (blockDim.x / 32) + static_cast<unsigned>(warp) : blockIdx.x / static_cast<unsigned>(splits);
  if (tile_of_all >= args.all_tiles) return;  // apart
  const unsigned batch = tile_of_all / args.tiles, tile = tile_of_all - batch * args.tiles;
  const int row0 = static_cast<int>(tile / args.columns) * kTile.m, col0 = static_cast<int>(tile % args.columns) * kTile.n;
  const int rows = min(kTile.m, static_cast<int>(p.m) - row0), columns = min(kTile.n, static_cast<int>(p.n) - col0);
  const float* const a = static_cast<const float*>(p.a.data) + (batch ? batch_offset(p, p.a, batch) : 0) + row0 * p.a.row_stride;
  const float* const b = static_cast<const float*>(p.b.data) + (batch ? batch_offset(p, p.b, batch) : 0) + col0 * p.b.col_stride;
  const int a_line = 4 * static_cast<int>(p.a.row_stride), a_k = 4 * static_cast<int>(p.a.col_stride);
  const int b_line = 4 * static_cast<int>(p.b.col_stride), b_k = 4 * static_cast<int>(p.b.row_stride);
  const int k_size = static_cast<int>(p.k), chunks = (k_size + kDepth - 1) / kDepth, step = args.apart ? 1 : kWarps * splits;
  float* const ring = rings + warp * Shape::kRing;

  const int own_first = args.apart ? 0 : split * kWarps + warp;
  int next = own_first;
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
  constexpr int kRowPairs = A::kGroups / 2;
  double sums[kRowPairs][B::kGroups][4] = {};
  int slot = 0;
  for (int chunk = own_first; chunk < chunks; chunk += step) {
    cp_async_wait<kStages - 2>();
    __syncwarp();  // all lanes' copies of this step have arrived, and all lanes have read the slot that is overwritten next
    const float* const of_a = ring + slot * Shape::kSlot;
    typename A::Fragments fa;
    typename B::Fragments fb;
    A::read(fa, of_a, lane);
    B::read(fb, of_a + A::kFloats, lane);
#pragma unroll
    for (int c = 0; c < B::kGroups; ++c)
#pragma unroll
      for (int r = 0; r < kRowPairs; ++r) mma_f64(sums[r][c], reinterpret_cast<const double(&)[2][4]>(fa[2 * r]), fb[c]);
    start_copy(slot == 0 ? kStages - 1 : slot - 1);  // after the products, or the first would wait for its issue
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }

  cp_async_wait<0>();
  __syncwarp();
  // Sums are stored in the fragments' order: rows and columns in groups of eight.
  double* const own_sums = reinterpret_cast<double*>(ring);
#pragma unroll
  for (int i = 0; i < A::kGroups; ++i)
#pragma unroll
    for (int c = 0; c < B::kGroups; ++c)
      store_vector(own_sums + (8 * i + lane / 4) * Shape::kSumPitch + 8 * c + lane % 4 * 2,
                   Vector<double, 2>{{sums[i / 2][c][i % 2 * 2], sums[i / 2][c][i % 2 * 2 + 1]}});
  if (args.apart)
    __syncwarp();
  else
    __syncthreads();

  finish<Shape, kAlongKB>(args, {batch, row0, col0, rows, columns}, rings, own_sums, split);
}

void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream) {
  const SlicedArguments args{.problem = p,
                             .a_vectors = has_vectors(p, lines_of_a(p), 4),
                             .b_vectors = has_vectors(p, lines_of_b(p), 4),
                             .plain = has_plain_epilogue(p) && !p.bias.data,
                             .apart = plan.apart,
                             .splits = static_cast<int>(plan.splits),
                             .columns = static_cast<unsigned>(ceil_div(p.n, info(plan.tile).n)),
                             .tiles = static_cast<unsigned>(plan.tiles / p.batches),
                             .all_tiles = static_cast<unsigned>(plan.tiles)};
  const int warps = plan.apart ? kSlicedApartWarps : sliced::kWarps;
  const std::int64_t ctas = plan.apart ? ceil_div(plan.tiles, warps) : plan.tiles * plan.splits;
  dispatch_tile<kSlicedTiles.size() / 2>(plan.tile, [&]<SlicedTile kTile>() {
    dispatch_flags(a_along_k(p), b_along_k(p), [&]<bool kAlongKA, bool kAlongKB>() {
      constexpr int kBytes = sliced::Shape<kTile, kAlongKA, kAlongKB>::kBytes;
      Grid grid = early_grid(ctas, 32 * warps, args.splits);
      grid.shared_bytes = static_cast<std::size_t>(kBytes / sliced::kWarps * warps);
      enqueue_with_shared<sliced_gemm<kTile, kAlongKA, kAlongKB>, kBytes>(grid, stream, args);
    });
  });
}

}  // namespace xgemm::matmul
