// fp32 product on Hopper's tensor cores (sm_90a) in one launch: operands are split in bf16 parts on the way, no pass over them, no
// scaling, no copy in memory. For products that are too small, too narrow or too flat for split_fp16.cuh and wgmma_gemm.cuh, which
// take half the tensor-core time but read and write the operands first. out = epilogue(A B) as kernels/epilogue.cuh says.
//
//   Split     x = hi + mid + lo, eight bits of x each, by truncation: exact, any exponent, so no number overflows. Three parts: six
//             products (lo hi, hi lo, mid mid, mid hi, hi mid, hi hi); what is dropped is under 2^-22 of |A||B|, 2^-24 on average. Two
//             parts (mid rounded): three products, 2^-16.
//   Roles     Warp 0 brings B (128 columns by 64 of k) to shared memory: TMA, or cp.async element by element where base or strides
//             are no multiples of 16 bytes. Warps 1 to 3 read A (kRows by 64; any strides), split it, and write the parts as wgmma's
//             K-major operand. Two warpgroups take 64 columns each: they read B from shared memory in the order of wgmma's register
//             operand, split it in registers, and multiply: C^T = B^T A^T, so that a weight, the large operand of a layer, never goes
//             through shared memory twice. The next block is split while the tensor cores do this one.
//   Promotion after each block of 64 k, as in wgmma_gemm.cuh, small products first.
//   Work      All tiles' blocks in one row, in units of `granule` blocks, cut in equal pieces for the CTAs. Of a tile that several
//             CTAs share, each leaves its sums in memory; who comes last adds them in the order of k and stores. So the order of
//             additions depends on the problem and the GPU alone.
//   Exactness Inf, NaN, and what is so small (under 2^-109) that lo loses bits are seen while splitting; a warpgroup that met one
//             does its piece again by fused multiply-adds.
//   Limits    sizes under 2^31; batches as epilogue.cuh.
//
// Floors: 6 (3) products of 2 M N K flop at 4096 a cycle and multiprocessor; bytes of A, B and C once. Per block and CTA 24 KiB (B: 32)
// of shared memory written and read; about 350 issue slots a warp for splitting, of 770 that its products take (64 rows, 3 parts).
#pragma once
#include <cuda.h>

#include "device/ptx/cp_async.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/ring.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/warpgroup.cuh"
#include "device/ptx/wgmma.cuh"
#include "matmul/direct_plan.h"
#include "matmul/kernels/simt.cuh"

namespace xgemm::matmul {

/// Compile-time choices of one instantiation: the kernel's parameter is a type with this as its member kValue.
struct DirectConfig {
  int rows;        ///< of C a CTA
  int parts;       ///< 2 or 3
  bool k_major_b;  ///< B's columns lie contiguous in shared memory
};

struct DirectArguments {
  CUtensorMap b;     ///< dims (contiguous, other, batch); boxes of 32 by 128 (K-major) or 64
  bool tma;          ///< else cp.async by the problem's strides
  bool a_along_k;    ///< quads of A run along k (else along its rows)
  bool a_vectors;    ///< and are one access each
  int batch_step_b;  ///< 0: one matrix for all batches
  unsigned rows, columns;           ///< tiles of C of a batch
  unsigned blocks, granule, units;  ///< k-blocks, those of a unit, units of a tile
  unsigned all_units;
  unsigned zero;  ///< 0
  unsigned* counters;  ///< [first CTA of a shared tile][warpgroup]
  float* partials;     ///< [CTA][first or last piece][warpgroup][row][64 columns]
  Problem problem;
};

namespace direct_detail {

inline constexpr int kBlock = kDirectBlock, kWarps = 16, kSplitters = 7 * 32, kSlotsA = 2;
inline constexpr int kSlotBytesB = kDirectColumns * kBlock * 4;
inline constexpr int kPitch = 64 + 4;  // of a row of sums in shared memory

template <class Config>
struct Shared {
  static constexpr DirectConfig kConfig = Config::kValue;
  static constexpr int kPartBytes = kConfig.rows * 128;
  static constexpr int kSlotBytesA = kConfig.parts * kPartBytes;
  static constexpr int kSumBytes = kConfig.rows * kPitch * 4;  // of a consumer warpgroup
  // A on its way: each splitting thread copies units of 4 by 4 for itself, kAhead blocks before it needs them.
  static constexpr int kUnits = kConfig.rows / 4 * (kBlock / 4), kUnitsMine = (kUnits + kSplitters - 1) / kSplitters;
  static constexpr int kAhead = kConfig.rows == 32 ? 3 : 2;
  static constexpr int kCopyBytes = kUnits * 4 * 16;  // of a block
  static constexpr int kRest =
      kSlotsA * kSlotBytesA + 2 * kSumBytes + kAhead * kCopyBytes + 1024 /* alignment */ + 512 /* barriers, flags */;
  static constexpr int kSlotsB = (227 * 1024 - kRest) / kSlotBytesB;
  static constexpr int kBytes = kRest + kSlotsB * kSlotBytesB;
  static_assert(kSlotsB >= 3);
};

/// Walks the pieces of this CTA's share: runs of blocks of one tile.
template <class Config>
struct Walk {
  const DirectArguments& g;
  unsigned unit, last;  // in the row of all tiles' units
  unsigned taken;
  int block, end;  // of the tile

  __device__ __forceinline__ explicit Walk(const DirectArguments& arguments) : g(arguments) {
    unit = share(blockIdx.x);
    last = share(blockIdx.x + 1);
    open();
  }
  /// First unit of CTA `cta`, and the CTA that has a unit.
  __device__ __forceinline__ unsigned share(unsigned cta) const {
    return static_cast<unsigned>(static_cast<std::uint64_t>(cta) * g.all_units / gridDim.x);
  }
  __device__ __forceinline__ unsigned owner(unsigned of) const {
    return static_cast<unsigned>((static_cast<std::uint64_t>(of + 1) * gridDim.x - 1) / g.all_units);
  }
  __device__ __forceinline__ bool done() const { return unit >= last; }
  __device__ __forceinline__ bool whole() const { return taken == g.units; }
  __device__ __forceinline__ void next_piece() {
    unit += taken;
    if (!done()) open();
  }
  __device__ __forceinline__ void open() {
    const unsigned within = unit % g.units;
    taken = min(g.units - within, last - unit);
    block = static_cast<int>(within * g.granule);
    end = static_cast<int>(min(g.blocks, (within + taken) * g.granule));
  }
  struct Place {
    int row, column, batch;
  };
  __device__ __forceinline__ Place place() const {
    // Groups of eight rows of tiles, column by column, so that CTAs in flight share operands in L2.
    constexpr unsigned kGroup = 8;
    const unsigned tile = unit / g.units, per_batch = g.rows * g.columns, in_batch = tile % per_batch, group = in_batch / (kGroup * g.columns);
    const unsigned in_group = in_batch - group * kGroup * g.columns, height = min(kGroup, g.rows - group * kGroup);
    return {static_cast<int>(group * kGroup + in_group % height) * Config::kValue.rows,
            static_cast<int>(in_group / height) * kDirectColumns, static_cast<int>(tile / per_batch)};
  }
};

/// Two numbers in kParts bf16 pairs, the first number in the lower halves. `lost` gathers what says that a number is not carried
/// exactly: bits in its lower 16 (three parts; Inf and NaN leave a NaN of ones), or any bit (two parts: Inf and NaN).
template <int kParts>
__device__ __forceinline__ void split_pair(float x, float y, std::uint32_t (&parts)[kParts], std::uint32_t& lost) {
  const auto upper = [](float a, float b) { return __byte_perm(__float_as_uint(a), __float_as_uint(b), 0x7632); };
  const auto rest = [](float a) { return a - __uint_as_float(__float_as_uint(a) & 0xffff0000u); };
  parts[0] = upper(x, y);
  const float rx = rest(x), ry = rest(y);
  if constexpr (kParts == 3) {
    parts[1] = upper(rx, ry);
    const float lx = rest(rx), ly = rest(ry);
    parts[2] = upper(lx, ly);
    lost |= __float_as_uint(lx) | __float_as_uint(ly);
  } else {
    const __nv_bfloat162 rounded = __floats2bfloat162_rn(rx, ry);
    parts[1] = reinterpret_cast<const std::uint32_t&>(rounded);
    lost |= (isnan(rx) || isnan(ry)) ? 1u : 0u;
  }
}

/// The product's element-by-element form for a warpgroup's piece: C^T as wgmma leaves it in registers, k from `begin` to `end`.
/// `stage`: (64 + rows) * 16 floats. The lines of B start at `column`.
template <class Config>
__device__ __forceinline__ void exact_piece(float (&sums)[Config::kValue.rows / 2], const DirectArguments& g, const float* a, const float* b,
                                         int rows, int columns, std::int64_t begin, std::int64_t end, float* stage, int barrier,
                                         int first_line, int second_line) {
  constexpr int kRows = Config::kValue.rows, kDepth = 16;
  const int thread = static_cast<int>(threadIdx.x) % 128, quad = thread % 4;
  const Problem& p = g.problem;
  float* const of_b = stage + kDepth * kRows;
#pragma unroll
  for (float& sum : sums) sum = 0;
  for (std::int64_t k0 = begin; k0 < end; k0 += kDepth) {
    ptx::named_barrier_sync(barrier, 128);
    for (int i = thread; i < kDepth * (kRows + 64); i += 128) {
      const bool is_b = i >= kDepth * kRows;
      const int at = is_b ? i - kDepth * kRows : i, lines = is_b ? 64 : kRows;
      const std::int64_t line_stride = is_b ? p.b.col_stride : p.a.row_stride, k_stride = is_b ? p.b.row_stride : p.a.col_stride;
      const int line = k_stride == 1 ? at / kDepth : at % lines, k = k_stride == 1 ? at % kDepth : at / lines;
      const bool inside = line < (is_b ? columns : rows) && k0 + k < end;
      (is_b ? of_b : stage)[k * lines + line] = inside ? (is_b ? b : a)[line * line_stride + (k0 + k) * k_stride] : 0.f;
    }
    ptx::named_barrier_sync(barrier, 128);
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      const float x = of_b[k * 64 + first_line], y = of_b[k * 64 + second_line];
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j) {
        const auto rows_here = load_vector<2>(stage + k * kRows + 8 * j + 2 * quad);
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          sums[4 * j + c] = fmaf(x, rows_here[c], sums[4 * j + c]);
          sums[4 * j + 2 + c] = fmaf(y, rows_here[c], sums[4 * j + 2 + c]);
        }
      }
    }
  }
  ptx::named_barrier_sync(barrier, 128);
}

}  // namespace direct_detail

template <class Config>
__global__ void __launch_bounds__(32 * direct_detail::kWarps, 1) direct_fp32(const __grid_constant__ DirectArguments g) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using namespace direct_detail;
  constexpr DirectConfig kConfig = Config::kValue;
  using Memory = Shared<Config>;
  constexpr bool kKMajorB = kConfig.k_major_b;
  constexpr int kRows = kConfig.rows, kParts = kConfig.parts, kSlotsB = Memory::kSlotsB, kSums = kRows / 2;
  constexpr int kConsumerWarps = 8;

  extern __shared__ unsigned char shared_memory[];
  unsigned char* const slots_b =
      shared_memory + ((1024 - (ptx::shared_address(shared_memory) & 1023)) & 1023);  // the swizzle is a pattern of 1024 bytes
  unsigned char* const slots_a = slots_b + kSlotsB * kSlotBytesB;
  float* const sum_rows = reinterpret_cast<float*>(slots_a + kSlotsA * Memory::kSlotBytesA);
  ptx::Barrier* const full_b = reinterpret_cast<ptx::Barrier*>(reinterpret_cast<unsigned char*>(sum_rows) + 2 * Memory::kSumBytes +
                                                                     Memory::kAhead * Memory::kCopyBytes);
  ptx::Barrier *const empty_b = full_b + kSlotsB, *const full_a = empty_b + kSlotsB, *const empty_a = full_a + kSlotsA;
  std::uint32_t* const lost_a = reinterpret_cast<std::uint32_t*>(empty_a + kSlotsA);  // [slot][splitting warp]
  std::uint32_t* const last_here = lost_a + 8 * kSlotsA;                              // [consumer]

  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 32, 0), lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kSlotsB; ++s) {
      ptx::barrier_init(&full_b[s], g.tma ? 1 : 32);
      ptx::barrier_init(&empty_b[s], kConsumerWarps);
    }
    for (int s = 0; s < kSlotsA; ++s) {
      ptx::barrier_init(&full_a[s], kSplitters / 32);
      ptx::barrier_init(&empty_a[s], kConsumerWarps);
    }
    ptx::fence_barrier_init();
    if (g.tma) ptx::prefetch_tensor_map(&g.b);
  }
  __syncthreads();
  ptx::grid_wait();
  ptx::grid_release();

  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n), k_size = static_cast<int>(p.k);

  if (warp < kWarps - kConsumerWarps) {
    ptx::release_registers<48>();
    if (warp == 0) {  // B
      ptx::Ring<kSlotsB> ring;
      const bool loads = !g.tma || ptx::elect_one();
      for (Walk<Config> walk(g); !walk.done(); walk.next_piece()) {
        if (!loads) continue;
        const auto at = walk.place();
        const float* const b = static_cast<const float*>(p.b.data) + (g.tma ? 0 : batch_offset(p, p.b, at.batch));
        for (int block = walk.block; block < walk.end; ++block, ring.advance()) {
          ptx::barrier_wait(&empty_b[ring.slot], ring.parity ^ 1);
          unsigned char* const target = slots_b + ring.slot * kSlotBytesB;
          const int k0 = block * kBlock;
          if (g.tma) {
            ptx::barrier_arrive_expect(&full_b[ring.slot], kSlotBytesB);
#pragma unroll
            for (int i = 0; i < (kKMajorB ? 2 : 4); ++i) {
              if constexpr (kKMajorB)
                ptx::tma_load(target + i * 16384, &g.b, &full_b[ring.slot], k0 + 32 * i, at.column, at.batch * g.batch_step_b);
              else
                ptx::tma_load(target + i * 8192, &g.b, &full_b[ring.slot], at.column + 32 * i, k0, at.batch * g.batch_step_b);
            }
          } else {
            // Rows of 32 elements, laid out as TMA would: K-major [half of k][column], else [32 columns][k].
#pragma unroll 4
            for (int row = 0; row < kSlotBytesB / 128; ++row) {
              const int column = at.column + (kKMajorB ? row % kDirectColumns : row / kBlock * 32 + lane);
              const int k = k0 + (kKMajorB ? row / kDirectColumns * 32 + lane : row % kBlock);
              const bool inside = column < n && k < k_size;
              cp_async<4>(target + row * 128 + ((lane / 4) ^ (row % 8)) * 16 + lane % 4 * 4,
                          inside ? b + column * p.b.col_stride + k * p.b.row_stride : b, inside ? 4 : 0);
            }
            ptx::barrier_arrive_copies(&full_b[ring.slot]);
          }
        }
      }
      if (!g.tma) {
        cp_async_commit();
        cp_async_wait<0>();
      }
    } else {  // A, in units of 4 rows by 4 of k
      constexpr int kUnits = Memory::kUnits, kMine = Memory::kUnitsMine, kAhead = Memory::kAhead;
      const int splitter = static_cast<int>(threadIdx.x) - 32;
      unsigned char* const copies = reinterpret_cast<unsigned char*>(sum_rows) + 2 * Memory::kSumBytes + splitter * 16;
      const auto copy_of = [&](int stage, int i, int x) {
        return copies + (stage * 4 + x) * kUnits * 16 + i * kSplitters * 16;
      };
      const auto mine = [&](int i) { return kUnits % kSplitters == 0 || splitter + i * kSplitters < kUnits; };
      struct Unit {
        int row, k;
      };
      // Along k a half warp takes a row's 64; along rows a warp takes 16 rows by 32 of k: few bank conflicts either way.
      const auto unit = [&](int i) {
        const int u = splitter + i * kSplitters;
        return g.a_along_k ? Unit{u / 16 * 4, u % 16 * 4}
                           : Unit{(u % 4 + u / 64 * 4) * 4, (u / 4 % 8 + u / 32 % 2 * 8) * 4};
      };
      // Four copies of four elements each: `inner` runs along the contiguous dim.
      const std::int64_t inner_stride = g.a_along_k ? p.a.col_stride : p.a.row_stride;
      const std::int64_t outer_stride = g.a_along_k ? p.a.row_stride : p.a.col_stride, block_stride = kBlock * p.a.col_stride;
      const float* const nowhere = static_cast<const float*>(p.a.data);
      Walk<Config> ahead(g);
      const float* from[kMine];
      auto at = ahead.place();
      const auto open = [&] {
        at = ahead.place();
        const float* const a = nowhere + batch_offset(p, p.a, at.batch);
#pragma unroll
        for (int i = 0; i < kMine; ++i)
          from[i] = a + (at.row + unit(i).row) * p.a.row_stride +
                    (static_cast<std::int64_t>(ahead.block) * kBlock + unit(i).k) * p.a.col_stride;
      };
      open();
      int left = 0;  // blocks that are copied and not yet split
      const auto copy_block = [&](int stage) {
        if (!ahead.done()) {
          ++left;
#pragma unroll
          for (int i = 0; i < kMine; ++i) {
            if (mine(i)) {
              const int rows = m - at.row - unit(i).row, depth = k_size - ahead.block * kBlock - unit(i).k;
              const int inner = g.a_along_k ? depth : rows, outer = g.a_along_k ? rows : depth;
#pragma unroll
              for (int x = 0; x < 4; ++x) {
                const float* const here = from[i] + x * outer_stride;
                unsigned char* const to = copy_of(stage, i, x);
                if (g.a_vectors) {
                  const bool inside = x < outer && inner > 0;
                  cp_async<16>(to, inside ? here : nowhere, inside ? 16 : 0);
                } else {
#pragma unroll
                  for (int y = 0; y < 4; ++y) {
                    const bool inside = x < outer && y < inner;
                    cp_async<4>(to + 4 * y, inside ? here + y * inner_stride : nowhere, inside ? 4 : 0);
                  }
                }
              }
            }
            from[i] += block_stride;
          }
          if (++ahead.block == ahead.end) {
            ahead.next_piece();
            if (!ahead.done()) open();
          }
        }
        cp_async_commit();  // an empty group too: the wait counts groups
      };
      const auto split_block = [&](int stage, unsigned char* target, auto along_k) {
        std::uint32_t lost = 0;
#pragma unroll
        for (int i = 0; i < kMine; ++i) {
          if (!mine(i)) continue;
          const Unit here = unit(i);
          Vector<float, 4> v[4];
#pragma unroll
          for (int x = 0; x < 4; ++x) v[x] = *reinterpret_cast<const Vector<float, 4>*>(copy_of(stage, i, x));
#pragma unroll
          for (int x = 0; x < 4; ++x) {
            const auto value = [&](int y) { return along_k ? v[x][y] : v[y][x]; };
            const int row = here.row + x;
            std::uint32_t first[kParts], second[kParts];
            split_pair<kParts>(value(0), value(1), first, lost);
            split_pair<kParts>(value(2), value(3), second, lost);
#pragma unroll
            for (int part = 0; part < kParts; ++part)
              *reinterpret_cast<uint2*>(target + part * Memory::kPartBytes + row * 128 + ((here.k / 8) ^ (row % 8)) * 16 +
                                        here.k % 8 * 2) = {first[part], second[part]};
          }
        }
        return lost;
      };
      for (int stage = 0; stage < kAhead; ++stage) copy_block(stage);
      ptx::Ring<kSlotsA> ring;
      for (int stage = 0; left > 0; ring.advance(), stage = stage + 1 == kAhead ? 0 : stage + 1) {
        cp_async_wait<kAhead - 1>();  // this thread's own copies: nobody else reads them
        unsigned char* const target = slots_a + ring.slot * Memory::kSlotBytesA;
        ptx::barrier_wait(&empty_a[ring.slot], ring.parity ^ 1);
        const std::uint32_t lost =
            g.a_along_k ? split_block(stage, target, std::true_type{}) : split_block(stage, target, std::false_type{});
        ptx::fence_async_shared();
        const bool any = __any_sync(0xffffffffu, (lost & 0xffffu) != 0);
        if (lane == 0) {
          lost_a[ring.slot * 8 + warp - 1] = any;
          ptx::barrier_arrive(&full_a[ring.slot]);
        }
        --left;
        copy_block(stage);
      }
    }
  } else {
    ptx::acquire_registers<208>();
    using Layout = ptx::OperandLayout<true, 128, 0>;
    const int consumer = warp / 4 - 2, warp_here = warp % 4, quad = lane % 4, octet = lane / 4;
    const int barrier = 1 + consumer;
    float* const rows_here = sum_rows + consumer * kRows * kPitch;
    const std::uint64_t base_a = Layout::descriptor(ptx::shared_address(slots_a));
    // Which of the warp's 16 columns of C (lines of B) the fragment's rows l / 4 and l / 4 + 8 are: chosen so that reads of swizzled
    // shared memory meet no bank conflict.
    const int line0 = kKMajorB ? octet % 4 * 2 + octet / 4 : 2 * octet, line1 = line0 + (kKMajorB ? 8 : 1);
    const int first_line = warp_here * 16 + line0, second_line = warp_here * 16 + line1;

    ptx::Ring<kSlotsA> ring_a;
    ptx::Ring<kSlotsB> ring_b;
    using Fragments = std::uint32_t[kBlock / 16][kParts][4];
    const auto split_block = [&](Fragments& fragments) {
      const unsigned char* const slot = slots_b + ring_b.slot * kSlotBytesB;
      std::uint32_t lost = 0;
#pragma unroll
      for (int step = 0; step < kBlock / 16; ++step) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {  // k 2 quad + 8 e of the step's 16
          Vector<float, 2> first, second;
          if constexpr (kKMajorB) {
            const int chunk = (step % 2 * 4 + 2 * e + quad / 2) ^ (line0 % 8);
            const unsigned char* const at = slot + step / 2 * 16384 + (consumer * 64 + first_line) * 128 + chunk * 16 + quad % 2 * 8;
            first = *reinterpret_cast<const Vector<float, 2>*>(at);
            second = *reinterpret_cast<const Vector<float, 2>*>(at + 8 * 128);
          } else {
            const int column = consumer * 64 + first_line;
            Vector<float, 2> at_k[2];
#pragma unroll
            for (int d = 0; d < 2; ++d) {
              const int chunk = (column % 32 / 4) ^ (2 * quad + d);
              at_k[d] = *reinterpret_cast<const Vector<float, 2>*>(
                  slot + column / 32 * 8192 + (16 * step + 8 * e + 2 * quad + d) * 128 + chunk * 16 + column % 4 * 4);
            }
            first = {{at_k[0][0], at_k[1][0]}}, second = {{at_k[0][1], at_k[1][1]}};
          }
          std::uint32_t parts[kParts];
          split_pair<kParts>(first[0], first[1], parts, lost);
#pragma unroll
          for (int part = 0; part < kParts; ++part) fragments[step][part][2 * e] = parts[part];
          split_pair<kParts>(second[0], second[1], parts, lost);
#pragma unroll
          for (int part = 0; part < kParts; ++part) fragments[step][part][2 * e + 1] = parts[part];
        }
      }
      return lost;
    };
    const auto pin = [](Fragments& fragments) {
#pragma unroll
      for (int step = 0; step < kBlock / 16; ++step)
#pragma unroll
        for (int part = 0; part < kParts; ++part) ptx::wgmma_pin(fragments[step][part]);
    };
    const auto release = [&](ptx::Barrier* barriers, int slot) {
      __syncwarp();
      if (lane == 0) ptx::barrier_arrive(&barriers[slot]);
    };

    Walk<Config> walk(g);
    // ptxas runs each wgmma alone if it sees an instruction set one of its input registers while another is under way (C7513), and would
    // see through a copy: so `next` reaches `now` through a zero that it does not know.
    const std::uint32_t zero = g.zero;
    Fragments now, next;
    ptx::barrier_wait(&full_b[0], 0);
    std::uint32_t lost_ahead = split_block(now);
    release(empty_b, 0);
    ring_b.advance();
    for (; !walk.done();) {
      float total[kSums];
#pragma unroll
      for (float& x : total) x = 0;
      std::uint32_t lost = 0;
      const bool last_piece = walk.unit + walk.taken >= walk.last;
      const int begin = walk.block;
      for (int block = begin; block < walk.end; ++block) {
        lost |= lost_ahead;
        ptx::barrier_wait(&full_a[ring_a.slot], ring_a.parity);
        float sums[kSums];
        const std::uint64_t slot_a = base_a + static_cast<unsigned>(ring_a.slot * (Memory::kSlotBytesA / 16));
        pin(now);
        ptx::wgmma_fence();
        // (part of B, part of A), the smallest products first.
        constexpr int kProducts = kParts == 3 ? 6 : 3;
        constexpr int kPartB[6] = {2, 0, 1, 1, 0, 0}, kPartA[6] = {0, 2, 1, 0, 1, 0};
#pragma unroll
        for (int product = 6 - kProducts; product < 6; ++product) {
#pragma unroll
          for (int step = 0; step < kBlock / 16; ++step)
            ptx::wgmma_registers(sums, now[step][kPartB[product]],
                                 slot_a + (kPartA[product] * Memory::kPartBytes + step * Layout::kStepBytes) / 16,
                                 product > 6 - kProducts || step > 0);
        }
        ptx::wgmma_commit();
        std::uint32_t lost_there = 0;
#pragma unroll
        for (int i = 0; i < kSplitters / 32; ++i) lost_there |= lost_a[ring_a.slot * 8 + i];
        const bool more = block + 1 < walk.end || !last_piece;
        if (more) ptx::barrier_wait(&full_b[ring_b.slot], ring_b.parity);
        lost_ahead = split_block(next);  // past the end: of what lies there, unused
        if (more) {
          release(empty_b, ring_b.slot);
          ring_b.advance();
        }
        ptx::wgmma_wait<0>();
        ptx::wgmma_pin(sums);
        release(empty_a, ring_a.slot);
        ring_a.advance();
        lost |= lost_there;
#pragma unroll
        for (int i = 0; i < kSums; ++i) total[i] = fmaf(sums[i], 1.f + 0x1p-23f, total[i]);
#pragma unroll
        for (int step = 0; step < kBlock / 16; ++step)
#pragma unroll
          for (int part = 0; part < kParts; ++part)
#pragma unroll
            for (int i = 0; i < 4; ++i) now[step][part][i] = next[step][part][i] ^ zero;
      }

      const auto at = walk.place();
      const int rows = min(kRows, m - at.row), column0 = at.column + consumer * 64, columns = min(64, n - column0);
      if (ptx::named_barrier_or(barrier, 128, (lost & 0xffffu) != 0))
        exact_piece<Config>(total, g, static_cast<const float*>(p.a.data) + batch_offset(p, p.a, at.batch) + at.row * p.a.row_stride,
                            static_cast<const float*>(p.b.data) + batch_offset(p, p.b, at.batch) + column0 * p.b.col_stride, rows,
                            columns, static_cast<std::int64_t>(begin) * kBlock,
                            min(p.k, static_cast<std::int64_t>(walk.end) * kBlock), rows_here, barrier, first_line, second_line);
      // To rows of C.
#pragma unroll
      for (int j = 0; j < kRows / 8; ++j)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float* const row = rows_here + (8 * j + 2 * quad + c) * kPitch;
          if constexpr (kKMajorB) {
            row[first_line] = total[4 * j + c];
            row[second_line] = total[4 * j + 2 + c];
          } else {
            store_vector(row + first_line, Vector<float, 2>{{total[4 * j + c], total[4 * j + 2 + c]}});
          }
        }
      ptx::named_barrier_sync(barrier, 128);
      const int column = lane % 16 * 4, row_first = warp_here * 2 + lane / 16;
      const auto epilogue = make_epilogue<float, float>(p, at.batch);
      float* const out = static_cast<float*>(p.out) + static_cast<std::int64_t>(at.batch) * p.m * p.n + column0 + column;
      const auto store = [&](int row, const Vector<float, 4>& sum) {
        const Quad<float> quad_sums{{sum[0], sum[1], sum[2], sum[3]}};
        const int count = columns - column;
        simt::store_global(out + static_cast<std::int64_t>(at.row + row) * p.n,
                           epilogue(quad_sums, at.row + row, column0 + column, count), count, p.n);
      };
      if (walk.whole()) {
        if (column < columns)
          for (int row = row_first; row < rows; row += 8) store(row, load_vector<4>(rows_here + row * kPitch + column));
      } else {
        const unsigned tile_unit = walk.unit / g.units * g.units, cta0 = walk.owner(tile_unit), cta1 = walk.owner(tile_unit + g.units - 1);
        // The last piece of its first CTA and the first piece of the others.
        const auto partial = [&](unsigned cta) {
          return g.partials + static_cast<std::size_t>((2 * cta + (cta == cta0)) * 2 + consumer) * (kRows * 64);
        };
        float* const mine = partial(blockIdx.x);
        for (int row = row_first; row < rows; row += 8)
          store_vector(mine + row * 64 + column, load_vector<4>(rows_here + row * kPitch + column));
        __threadfence();
        ptx::named_barrier_sync(barrier, 128);
        if (threadIdx.x % 128 == 0) {
          unsigned* const counter = g.counters + 2 * cta0 + consumer;
          const bool last = atomicAdd(counter, 1) == cta1 - cta0;
          if (last) *counter = 0;
          last_here[consumer] = last;
          __threadfence();
        }
        ptx::named_barrier_sync(barrier, 128);
        if (last_here[consumer] && column < columns) {
          for (int row = row_first; row < rows; row += 8) {
            Vector<float, 4> sum{};
            for (unsigned cta = cta0; cta <= cta1; ++cta) {
              const float4 part = __ldcg(reinterpret_cast<const float4*>(partial(cta) + row * 64 + column));
              const Vector<float, 4> v{{part.x, part.y, part.z, part.w}};
#pragma unroll
              for (int i = 0; i < 4; ++i) sum[i] = cta == cta0 ? v[i] : sum[i] + v[i];
            }
            store(row, sum);
          }
        }
      }
      walk.next_piece();
    }
  }
#endif
}

}  // namespace xgemm::matmul
