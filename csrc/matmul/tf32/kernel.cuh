// fp32 product in tf32 on Hopper's tensor cores (sm_90a), one launch, no pass over the operands: out = epilogue(A B) as
// epilogue/apply.cuh says, every number rounded to tf32 (10 bits, to nearest even) by TMA on its way to shared memory.
//
//   Operands  One is x, kX lines of it a CTA, the other y, kY lines: rows of A and columns of B, or (`swapped`) columns and rows;
//             then the tensor cores compute C^T. wgmma takes tf32 from shared memory K-major only: y is, and x may be; where x is
//             contiguous along its lines it goes through registers. Base and strides multiples of 16 bytes.
//   Roles     One warp loads (TMA), each warpgroup before it multiplies 64 lines of x by the tile's lines of y.
//   Registers wgmma's rows l / 4 and l / 4 + 8 of a warp's 16 stand for two neighbouring lines of x, and half a warp's lines lie
//             in pieces p and p + 4 of 16 bytes: so reads of swizzled shared memory meet no bank conflict.
//   Work      CTAs take tiles in turn. Where tiles are few, K is cut in `splits` equal parts, a CTA each, all at once, so that
//             those beside each other read the same k: merge(). The order of additions depends on the problem and the GPU.
//   Edges     A K-major operand's last tiles begin earlier and overlap the ones before rather than end outside the matrix: TMA
//             takes longer for lines outside than for lines inside. What is computed twice has the same bits.
//   Range     fp32's, Inf and NaN as torch has them (any NaN: TMA makes its payload one that the tensor cores see); what is
//             within 2^-12 of fp32's largest number is rounded to Inf, as in torch's TF32.
//   Limits    sizes under 2^31; batches as epilogue.cuh.
//
// Floors: 2 M N K flop at 2048 a cycle and multiprocessor; per k-block of 32 and CTA, shared memory takes 128 (kX + kY) bytes
// from TMA and gives 128 (64 + kY) to each warpgroup, at 128 bytes a cycle; bytes of A, B and C once.
#pragma once
#include <cuda.h>

#include "device/pipeline.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/shared_memory.cuh"
#include "device/tile_order.cuh"
#include "matmul/simt/kernel.cuh"
#include "matmul/tf32/plan.h"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct Tf32Config {
  Tf32Tile tile;
  bool k_major_x;
  constexpr int x() const { return info(tile).x; }
  constexpr int y() const { return info(tile).y; }
  constexpr int blocks() const { return info(tile).blocks; }
  constexpr int per_sm() const { return info(tile).per_sm; }
  constexpr int warpgroups() const { return x() / 64; }
  /// Two warpgroups that multiply take registers from a whole one that loads.
  constexpr bool lends() const { return warpgroups() > 1; }
  constexpr int threads() const { return 128 * warpgroups() + (lends() ? 128 : 32); }
};

struct Tf32Arguments {
  CUtensorMap x, y;  ///< dims (contiguous, other, batch); boxes of 32 by kX or kY lines (K-major) or by a slot's k
  Problem problem;
  bool swapped;                    ///< x are columns of C
  bool plain;                      ///< nothing but alpha and bias in the epilogue
  int batch_step_x, batch_step_y;  ///< 0: one matrix for all batches
  int slot_bytes;                  ///< what TMA brings to one slot: of few lines of y only those
  unsigned tiles_x, tiles_y;       ///< of a batch
  int last_x, last_y;              ///< where a tile begins at most (see Edges)
  unsigned items, splits;          ///< tiles times `splits`, parts of K; more than 1: as many CTAs as items
  unsigned blocks, split_blocks;   ///< slots of K, and of a part
  unsigned* counters;              ///< [level][CTA][warpgroup]
  float* partials;                 ///< [CTA][warpgroup][quad of a thread's sums][thread]
};

namespace tf32_detail {

inline constexpr int kWarpgroupBarrier = 1;  // named barriers, one a warpgroup

template <class Config>
struct Shared {
  static constexpr Tf32Config kConfig = Config::kValue;
  static constexpr int kDepth = kTf32TileK * kConfig.blocks();  // k of a slot
  static constexpr int kBytesX = kConfig.x() * kDepth * 4, kBytesY = kConfig.y() * kDepth * 4, kSlotBytes = kBytesX + kBytesY;
  static constexpr int kWarps = 4 * kConfig.warpgroups();
  static constexpr int kStage = 640;  // floats of a warp's sums on their way to C
  static constexpr int kRest = kWarps * kStage * 4 + kSwizzlePattern + 256 /* barriers, flags */;
  static constexpr int kRoom = (kConfig.per_sm() == 1 ? 227 : 113) * 1024;
  static constexpr int kSlots = (kRoom - kRest) / kSlotBytes < 8 ? (kRoom - kRest) / kSlotBytes : 8;
  static constexpr int kBytes = kRest + kSlots * kSlotBytes;
  static_assert(kSlots >= 3);
};

/// One of the CTA's items: a tile, or a part of K of one.
template <class Config>
struct Item {
  int x, y, batch;  ///< the tile's first lines
  int block, end;   ///< slots of K
  unsigned split;
  __device__ __forceinline__ Item(const Tf32Arguments& g, unsigned item) {
    const unsigned tile = g.splits == 1 ? item : item / g.splits;
    split = item - tile * g.splits;
    block = static_cast<int>(split * g.split_blocks);
    end = static_cast<int>(min(g.blocks, (split + 1) * g.split_blocks));
    constexpr unsigned kGroup = Config::kValue.x() == Config::kValue.y() ? 12 : 16;
    const TilePlace at = tile_at<kGroup>(tile, g.tiles_x, g.tiles_y);
    x = min(static_cast<int>(at.row) * Config::kValue.x(), g.last_x);
    y = min(static_cast<int>(at.column) * Config::kValue.y(), g.last_y);
    batch = static_cast<int>(at.batch);
  }
};

/// Where a thread's sums lie in C: rows l / 4 and l / 4 + 8 of its warp stand for lines `first` and `second` of the warpgroup's
/// 64 lines of x; element 4 j + 2 h + c of the sums is line 8 j + 2 (l % 4) + c of y.
template <class Config>
struct Lines {
  static constexpr bool kKMajor = Config::kValue.k_major_x;
  int lane, warp, quad, octet;
  __device__ __forceinline__ Lines() {
    unsigned thread;  // read anew, so that no register holds all this through the main loop
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    lane = static_cast<int>(thread) % 32, warp = static_cast<int>(thread) / 32 % 4, quad = lane % 4, octet = lane / 4;
  }
  /// Of the warp's 16 lines, in the order in which `stage` has them: quads of neighbours, and the line at a place.
  __device__ __forceinline__ int of_quad(int i) const {
    return kKMajor ? 16 * warp + 4 * i : 32 * (warp / 2) + 4 * (warp % 2 * 2 + i / 2 + i % 2 * 4);
  }
  __device__ __forceinline__ int of_row(int row) const { return of_quad(row / 4) + row % 4; }
  /// The place among the 16 of row octet + 8 h: MN-major, a lane's two lines are neighbours.
  __device__ __forceinline__ int row(int h) const { return kKMajor ? octet + 8 * h : 2 * octet + h; }
  __device__ __forceinline__ int first() const { return of_row(row(0)); }
};

/// A warp's sums to C from the registers: alpha and bias alone. 8 bytes at a time where a lane has neighbours and n is even, else
/// 4, but whole sectors of 32 bytes a warp.
template <class Config>
__device__ __forceinline__ void store_plain(const float (&sums)[Config::kValue.y() / 2], const Tf32Arguments& g, int x, int y,
                                            int batch) {
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  const Lines<Config> lines;
  const float alpha = static_cast<float>(p.alpha);
  const bool pairs = n % 2 == 0;
  float* const out = static_cast<float*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
  const float* const bias = static_cast<const float*>(p.bias.data);
  const auto bias_of = [&](int col) { return bias ? bias[min(col, n - 1) * p.bias.col_stride] : 0.f; };
  const auto result = [&](int i, float add) { return plus(fmaf(alpha, sums[i], 0.f), add); };  // + 0: see epilogue.cuh
  const auto store_pair = [&](float* to, int col, float first, float second) {
    if (pairs) {
      if (col < n) store_vector(to, Vector<float, 2>{{first, second}});
    } else {
      if (col < n) to[0] = first;
      if (col + 1 < n) to[1] = second;
    }
  };
  if (!g.swapped) {
    const int col = y + 2 * lines.quad, first = x + lines.of_row(lines.row(0)), second = x + lines.of_row(lines.row(1));
    float* const to_first = out + static_cast<std::int64_t>(first) * p.n + col;
    float* const to_second = out + static_cast<std::int64_t>(second) * p.n + col;
#pragma unroll
    for (int j = 0; j < Config::kValue.y() / 8; ++j) {
      const float add0 = bias_of(col + 8 * j), add1 = bias_of(col + 8 * j + 1);
      if (first < m) store_pair(to_first + 8 * j, col + 8 * j, result(4 * j, add0), result(4 * j + 1, add1));
      if (second < m) store_pair(to_second + 8 * j, col + 8 * j, result(4 * j + 2, add0), result(4 * j + 3, add1));
    }
  } else {
    const int row = y + 2 * lines.quad, first = x + lines.of_row(lines.row(0)), second = x + lines.of_row(lines.row(1));
    const float add0 = bias_of(first), add1 = bias_of(second);
    float* to = out + static_cast<std::int64_t>(row) * p.n;
#pragma unroll
    for (int j = 0; j < Config::kValue.y() / 8; ++j, to += 8 * p.n) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        if (row + 8 * j + c >= m) break;
        if constexpr (Config::kValue.k_major_x) {
          if (first < n) to[c * p.n + first] = result(4 * j + c, add0);
          if (second < n) to[c * p.n + second] = result(4 * j + 2 + c, add1);
        } else {
          store_pair(to + c * p.n + first, first, result(4 * j + c, add0), result(4 * j + 2 + c, add1));
        }
      }
    }
  }
}

/// A warp's sums to C by any epilogue, 32 lines of y a turn, through `stage`: rows of C, 16 of 32 + 8 or (swapped) 32 of 16 + 4,
/// so that neither writes nor whole rows' reads meet bank conflicts.
template <class Config>
__device__ __forceinline__ void store(const float (&sums)[Config::kValue.y() / 2], const Tf32Arguments& g, int x, int y,
                                      int batch, float* stage) {
  constexpr int kTurns = Config::kValue.y() / 32;
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), lines_y = g.swapped ? m : n;
  const Lines<Config> lines;
  float* const out = static_cast<float*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
  const auto e = make_epilogue<float, float>(p, batch);
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn, y += 32) {
    if (y >= lines_y) break;
#pragma unroll
    for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index; all that follows stands in the code once
      if (known != turn) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const here = sums + 16 * known + 4 * j;
        const int at = 8 * j + 2 * lines.quad;
        if (!g.swapped) {
          store_vector(stage + lines.row(0) * 40 + at, Vector<float, 2>{{here[0], here[1]}});
          store_vector(stage + lines.row(1) * 40 + at, Vector<float, 2>{{here[2], here[3]}});
        } else if (Config::kValue.k_major_x) {
#pragma unroll
          for (int i = 0; i < 4; ++i) stage[(at + i % 2) * 20 + lines.row(i / 2)] = here[i];
        } else {
          store_vector(stage + at * 20 + lines.row(0), Vector<float, 2>{{here[0], here[2]}});
          store_vector(stage + (at + 1) * 20 + lines.row(0), Vector<float, 2>{{here[1], here[3]}});
        }
      }
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lines.lane; i < 128; i += 64) {  // two quads a lane: their chains of instructions overlap
      float values[8];
      std::int64_t row[2], col[2];
      int count[2];
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        const int at = i + 32 * q, major = g.swapped ? at / 4 : at / 8, minor = g.swapped ? at % 4 : at % 8;
        row[q] = g.swapped ? y + major : x + lines.of_row(major), col[q] = g.swapped ? x + lines.of_quad(minor) : y + 4 * minor;
        count[q] = row[q] < m ? n - static_cast<int>(col[q]) : 0;
        row[q] = min(row[q], p.m - 1), col[q] = min(col[q], p.n - 1);
        const auto sum = load_vector<4>(stage + major * (g.swapped ? 20 : 40) + 4 * minor);
#pragma unroll
        for (int j = 0; j < 4; ++j) values[4 * q + j] = fmaf(e.alpha, sum[j], 0.f);  // + 0: see epilogue.cuh
      }
      const auto column = [&](int v) { return min(col[v / 4] + v % 4, p.n - 1); };
      if (e.c) {
#pragma unroll
        for (int v = 0; v < 8; ++v) values[v] = fmaf(e.beta, e.c[row[v / 4] * e.c_row + column(v) * e.c_col], values[v]);
      }
      if (e.bias) {
#pragma unroll
        for (int v = 0; v < 8; ++v) values[v] = plus(values[v], e.bias[column(v) * e.bias_col]);
      }
      activate_all<float>(values, e.activation);
      if (e.residual) {
#pragma unroll
        for (int v = 0; v < 8; ++v)
          values[v] = plus(values[v], e.residual[row[v / 4] * e.residual_row + column(v) * e.residual_col]);
      }
#pragma unroll
      for (int q = 0; q < 2; ++q) {
        if (count[q] <= 0) continue;
        simt::store_global(out + row[q] * p.n + col[q],
                           Quad<float>{{values[4 * q], values[4 * q + 1], values[4 * q + 2], values[4 * q + 3]}}, count[q], p.n);
      }
    }
    __syncwarp();
  }
}

/// Parts of K: each CTA's sums of its part go to memory; kTf32Fan of them are added in order by the warpgroup that comes last,
/// and those sums likewise. True for the warpgroup that has them all.
template <class Config>
__device__ __forceinline__ bool merge(float (&sums)[Config::kValue.y() / 2], const Tf32Arguments& g, unsigned mine, int warpgroup,
                                      int thread, unsigned* flag) {
  constexpr int kWarpgroups = Config::kValue.warpgroups(), kQuads = Config::kValue.y() / 8, kTogether = kQuads <= 8 ? 4 : 1;
  const unsigned first = blockIdx.x - mine;  // CTA of the tile
  const auto partial = [&](unsigned part) {
    return g.partials + static_cast<std::size_t>((first + part) * kWarpgroups + warpgroup) * (kQuads * 512) + thread * 4;
  };
  unsigned* counters = g.counters + first * kWarpgroups + warpgroup;
#pragma unroll 1
  for (unsigned step = 1; step < g.splits; step *= kTf32Fan, counters += gridDim.x * kWarpgroups) {
    const unsigned leader = mine / (step * kTf32Fan) * (step * kTf32Fan),
                   count = min(unsigned{kTf32Fan}, (g.splits - leader + step - 1) / step);
    float* const own = partial(mine);
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      store_vector(own + 512 * i, Vector<float, 4>{{sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]}});
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
    if (thread == 0) {
      unsigned* const counter = counters + leader * kWarpgroups;
      __threadfence();
      const bool last = atomicAdd(counter, 1) == count - 1;
      if (last) *counter = 0;
      *flag = last;
      __threadfence();
    }
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);
    if (!*flag) return false;
    mine = leader;
#pragma unroll
    for (float& sum : sums) sum = 0;
#pragma unroll 1
    for (unsigned i = 0; i < count; i += kTogether) {
      float4 values[kTogether][kQuads];
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        const float* const from = partial(leader + min(i + t, count - 1) * step);
#pragma unroll
        for (int j = 0; j < kQuads; ++j) values[t][j] = __ldcg(reinterpret_cast<const float4*>(from + 512 * j));
      }
#pragma unroll
      for (int t = 0; t < kTogether; ++t) {
        if (i + t >= count) break;
#pragma unroll
        for (int j = 0; j < kQuads; ++j) {
          const float4& v = values[t][j];
          sums[4 * j] += v.x, sums[4 * j + 1] += v.y, sums[4 * j + 2] += v.z, sums[4 * j + 3] += v.w;
        }
      }
    }
    ptx::named_barrier_sync(kWarpgroupBarrier + warpgroup, 128);  // all have read the flag
  }
  return true;
}

}  // namespace tf32_detail

template <class Config>
__global__ void __launch_bounds__(Config::kValue.threads(), Config::kValue.per_sm())
    tf32_gemm(const __grid_constant__ Tf32Arguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace tf32_detail;
  constexpr Tf32Config kConfig = Config::kValue;
  using Memory = Shared<Config>;
  constexpr int kX = kConfig.x(), kY = kConfig.y(), kBlocks = kConfig.blocks(), kSlots = Memory::kSlots, kDepth = Memory::kDepth;
  constexpr int kSums = kY / 2, kSteps = kDepth / 8, kConsumerWarps = Memory::kWarps;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots = shared_memory + swizzle_padding(shared_memory);
  float* const stages = reinterpret_cast<float*>(slots + kSlots * Memory::kSlotBytes);
  const Pipeline<kSlots> pipeline{reinterpret_cast<ptx::Barrier*>(stages + kConsumerWarps * Memory::kStage)};
  unsigned* const flags = reinterpret_cast<unsigned*>(pipeline.empty + kSlots);

  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    pipeline.init(1, kConsumerWarps);
    ptx::fence_barrier_init();
    ptx::prefetch_tensor_map(&g.x);
    ptx::prefetch_tensor_map(&g.y);
  }
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();

  PipelineState<kSlots> state;
  if (warp >= kConsumerWarps) {
    if constexpr (kConfig.lends()) ptx::release_registers<24>();
    if (warp > kConsumerWarps || !ptx::elect_one()) return;
    for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
      const Item<Config> at(g, index);
      const int batch_x = at.batch * g.batch_step_x, batch_y = at.batch * g.batch_step_y;
      for (int block = at.block; block < at.end; ++block, state.advance()) {
        const int k = block * kDepth;
        unsigned char* const target = slots + state.slot * Memory::kSlotBytes;
        ptx::Barrier* const landed = pipeline.acquire(state);
        ptx::barrier_arrive_expect(landed, static_cast<unsigned>(g.slot_bytes));
        if constexpr (kConfig.k_major_x) {
#pragma unroll
          for (int i = 0; i < kBlocks; ++i) ptx::tma_load(target + i * kX * 128, &g.x, landed, k + kTf32TileK * i, at.x, batch_x);
        } else {
#pragma unroll
          for (int i = 0; i < kX / 32; ++i) ptx::tma_load(target + i * kDepth * 128, &g.x, landed, at.x + 32 * i, k, batch_x);
        }
#pragma unroll
        for (int i = 0; i < kBlocks; ++i)
          ptx::tma_load(target + Memory::kBytesX + i * kY * 128, &g.y, landed, k + kTf32TileK * i, at.y, batch_y);
      }
    }
    return;
  }

  if constexpr (kConfig.lends()) ptx::acquire_registers<240>();
  using Layout = ptx::OperandLayout<true, 128, 0>;
  const int warpgroup = warp / 4;
  const std::uint64_t base_y = Layout::descriptor(ptx::shared_address(slots) + Memory::kBytesX);
  const std::uint64_t base_x = Layout::descriptor(ptx::shared_address(slots) + warpgroup * 64 * 128);
  // Registers: of the slot, where the thread's pair of lines lies at its first k, l % 4.
  const std::uint32_t first_at = [&] {
    const Lines<Config> at;
    const int line = at.first() % 32;
    return static_cast<std::uint32_t>((warpgroup * 2 + at.first() / 32) * kDepth * 128 + at.quad * 128 +
                                      ((line / 4) ^ at.quad) * 16 + line % 4 * 4);
  }();
  const auto release = [&](int slot) {
    __syncwarp();
    if (lane == 0) pipeline.release(slot);
  };
  for (unsigned index = blockIdx.x; index < g.items; index += gridDim.x) {
    const Item<Config> at(g, index);
    float sums[kSums];
    int previous = 0;
    for (int block = at.block; block < at.end; ++block, state.advance()) {
      const std::uint64_t offset = static_cast<unsigned>(state.slot * (Memory::kSlotBytes / 16));
      const auto at_y = [&](int step) { return base_y + offset + (step / 4 * kY * 128 + step % 4 * 32) / 16; };
      pipeline.wait(state);
      if constexpr (kConfig.k_major_x) {
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma_tf32(sums, base_x + offset + (step / 4 * kX * 128 + step % 4 * 32) / 16, at_y(step),
                          block > at.block || step > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();  // the group before is done, and with it its slot
        if (block > at.block) release(previous);
        previous = state.slot;
      } else {
        std::uint32_t fragments[kSteps][4];
        const std::uint32_t pairs =
            ptx::shared_address(slots) + static_cast<unsigned>(state.slot * Memory::kSlotBytes) + first_at;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const auto low = ptx::load_pair(pairs + step * 1024), high = ptx::load_pair((pairs ^ 64) + step * 1024 + 512);  // k + 4
          fragments[step][0] = __float_as_uint(low[0]), fragments[step][1] = __float_as_uint(low[1]);
          fragments[step][2] = __float_as_uint(high[0]), fragments[step][3] = __float_as_uint(high[1]);
        }
#pragma unroll
        for (int step = 0; step < kSteps; ++step) ptx::wgmma_pin(fragments[step]);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          ptx::wgmma_tf32(sums, fragments[step], at_y(step), block > at.block || step > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(sums);
#pragma unroll
        for (int step = 0; step < kSteps; ++step) ptx::wgmma_pin(fragments[step]);  // alive until here
        release(state.slot);  // no proxy fence: the products have used all that was loaded
      }
    }
    if constexpr (kConfig.k_major_x) {
      ptx::wgmma_wait<0>();
      ptx::wgmma_pin(sums);
      release(previous);
    }
    if (g.splits > 1) {
      const Lines<Config> lines;
      if (!merge<Config>(sums, g, at.split, warpgroup, lines.warp * 32 + lines.lane, flags + warpgroup)) return;
    }
    if (g.plain)
      store_plain<Config>(sums, g, at.x + 64 * warpgroup, at.y, at.batch);
    else
      store<Config>(sums, g, at.x + 64 * warpgroup, at.y, at.batch, stages + warp * Memory::kStage);
  }
#endif
}

}  // namespace xgemm::matmul
