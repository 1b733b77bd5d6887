// Products of 16-bit operands in large tiles by mma.sync (sm_80 and later): half precision, and fp32 operands that
// fp16_split/split.cuh has turned into one or two scaled fp16 parts; out = epilogue(A B) as epilogue/apply.cuh says. One CTA a
// tile, or a split of its K. Hopper has wgmma/kernel.cuh for the same operands.
//
//   Operands  contiguous along k or along their lines each, rows at multiples of 16 bytes (tensor_operand.h); any sizes.
//   Load      cp.async of 16 bytes to swizzled shared memory: a ring of three k-blocks or more.
//   Loop      the fragments of the next 16 k are read while these multiply (two parts: registers are scarce, so B's of the next
//   16
//             columns); a block's slot is filled while the next one is multiplied.
//   Order     16 k at a time into one accumulator, the bits of mma/kernel.cuh; splits are added in order. Two parts: products of
//             16 k of the large parts are added in fp32, since the tensor core rounds toward zero; those with a small part have
//             an accumulator of their own, which is added last.
//
// Floors: 2 M N K flop (two parts: three times) at the device's rate (plan/machine.h); shared memory delivers 128 bytes a cycle:
// a warp's 64 x 64 x 16 products read 4 KB and take 128 (A100) or 100 cycles of its SM's quarter.
#pragma once
#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "device/ptx/mbarrier.cuh"
#include "matmul/dispatch.h"
#include "matmul/fp16_split/line_scale.cuh"
#include "matmul/launch.h"
#include "matmul/mma/large_tile.cuh"
#include "matmul/operand_map.h"

namespace xgemm::matmul {

namespace large_detail {

/// A thread's copies of an operand's k-blocks, in pieces of 16 bytes: kCopies a block. Lines out of bounds are left as they are:
/// their products are not stored.
template <class Shape, bool kAlongK, int kLines>
class LargeCopies {
  using Panel = typename Shape::template PanelOf<kAlongK, kLines>;
  static constexpr int kParts = Shape::kParts;
  const char* from;       // the thread's next piece
  std::int64_t row_step;  // bytes from one of its rows to the next
  std::int64_t to_next;   // from a block's last row to the next block's first
  std::int64_t part;
  int to, left;    // offset of its first piece in a panel; bytes (along k) or rows in bounds from that piece on
  int piece;       // bytes of a piece in bounds, where it lies along lines
  unsigned there;  // its rows in bounds, one bit each; none where pieces are not whole

 public:
  static constexpr int kCopies = Panel::kCount * kParts;
  __device__ __forceinline__ LargeCopies(const LargeOperand& x, unsigned batch, std::int64_t line, int lines,
                                         std::int64_t first_k, int depth) {
    const std::int64_t ld = 2 * x.ld;
    const int row = Panel::first(), at = Panel::at();
    from = static_cast<const char*>(x.data) + 2 * (batch * x.batch_stride) + ((kAlongK ? line : first_k) + row) * ld +
           2 * (kAlongK ? first_k : line) + 16 * at;
    row_step = Panel::kStep * ld, to_next = (kAlongK ? 2 * Shape::kBlockK : Shape::kBlockK * ld) - (Panel::kCount - 1) * row_step,
    part = 2 * x.part_stride;
    to = Panel::place(row, at);
    left = kAlongK ? 2 * depth - 16 * at : depth - row;
    piece = min(max(2 * (lines - 8 * at), 0), 16);
    sized = !kAlongK && !x.padded && lines < kLines && lines % 8 != 0;
    there = 0;
#pragma unroll
    for (int i = 0; i < Panel::kCount; ++i)
      if (kAlongK ? row + i * Panel::kStep < lines : piece > 0 && !sized) there |= 1u << i;
  }
  /// Copies `kFirst` to `kLast` - 1 of the next block, all of whose k are in bounds, if `on`.
  template <int kFirst, int kLast>
  __device__ __forceinline__ void issue(unsigned char* panel, bool on) {
    const unsigned rows = on ? there : 0;
#pragma unroll
    for (int i = kFirst; i < kLast; ++i) {
      const int row = i / kParts, p = i % kParts;
      if (i > 0 && p == 0) from += row_step;
      cp_async_if(panel + p * Panel::kBytes + to + row * (Panel::kStep * Panel::kRow), from + p * part, rows >> row & 1);
    }
  }
  /// The block, if it exists and issue() did not copy it; then the next block.
  __device__ __forceinline__ void finish(unsigned char* panel, bool on, bool exists) {
    if (exists && (sized || !on)) {
      const char* x = from - (Panel::kCount - 1) * row_step;
#pragma unroll 1
      for (int i = 0; i < Panel::kCount; ++i, x += row_step) {
        const bool row = kAlongK ? (there >> i & 1) != 0 : i * Panel::kStep < left;
        const int bytes = !row ? 0 : kAlongK ? min(max(left, 0), 16) : piece;
#pragma unroll
        for (int p = 0; p < kParts; ++p)
          copy_some(panel + p * Panel::kBytes + to + i * (Panel::kStep * Panel::kRow), x + p * part, bytes);
      }
    }
    from += to_next;
    left -= kAlongK ? 2 * Shape::kBlockK : Shape::kBlockK;
  }

 private:
  bool sized;  // lines end within a piece: every block is copied by finish()
  /// A piece of which `bytes` are in bounds, zeros after them: by element, where cp.async would name bytes out of bounds.
  static __device__ __forceinline__ void copy_some(unsigned char* to, const char* source, int bytes) {
    if (bytes == 0 || bytes == 16) return cp_async<16>(to, source, bytes);
#pragma unroll 1
    for (int b = 0; b < 16; b += 2)
      *reinterpret_cast<std::uint16_t*>(to + b) =
          b < bytes ? *reinterpret_cast<const std::uint16_t*>(source + b) : std::uint16_t{0};
  }
};

/// Waits for a phase of a barrier; sm_80 can only ask.
__device__ __forceinline__ void await(ptx::Barrier* barrier, unsigned parity) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  while (!ptx::barrier_test(barrier, parity)) continue;
#else
  ptx::barrier_wait(barrier, parity);
#endif
}

/// Calls f.operator()<step>() for steps 0 to kSteps - 1.
template <int kSteps, class F>
__device__ __forceinline__ void each_step(const F& f) {
  [&]<int... kStep>(std::integer_sequence<int, kStep...>) {
    (f.template operator()<kStep>(), ...);
  }(std::make_integer_sequence<int, kSteps>{});
}

/// A warp's products. One part: fragments of 16 k are read a step ahead.
template <class T, class Shape>
struct LargeMultiplier {
  static constexpr int kHigh = Shape::kRows / 16, kWide = Shape::kColumns / 16, kLast = Shape::kSteps - 1;
  const typename Shape::ReaderA reader_a;
  const typename Shape::ReaderB reader_b;
  typename Shape::Sums sums = {};
  std::uint32_t a[2][kHigh][4], b[2][kWide][4];
  __device__ __forceinline__ LargeMultiplier(int row, int column, int lane) : reader_a(row, lane), reader_b(column, lane) {}

  __device__ __forceinline__ void read(const unsigned char* slot, int step, int to) {
#pragma unroll
    for (int i = 0; i < kHigh; ++i) reader_a.read(a[to][i], slot, i, step);
#pragma unroll
    for (int j = 0; j < kWide; ++j) reader_b.read(b[to][j], slot + Shape::A::kBytes, j, step);
  }
  /// The first block has landed.
  __device__ __forceinline__ void begin(const unsigned char* slot) { read(slot, 0, 0); }
  /// Multiplies a block whose first fragments have been read. copy<step>(), of all steps but the last, copies a part of a later
  /// one. done() says that the block's last fragments are read; next() waits until all threads have said so and the next block
  /// has landed, and returns its slot, or null.
  template <class Copy, class Done, class Next>
  __device__ __forceinline__ void block(const unsigned char* slot, const Copy& copy, const Done& done, const Next& next) {
    each_step<Shape::kSteps>([&]<int kStep>() {
      if constexpr (kStep < kLast) {
        read(slot, kStep + 1, (kStep + 1) % 2);
        copy.template operator()<kStep>();
        if constexpr (kStep + 1 == kLast) done();
      } else if (const unsigned char* const after = next()) {
        read(after, 0, 0);
      }
#pragma unroll
      for (int i = 0; i < kHigh; ++i)
#pragma unroll
        for (int j = 0; j < 2 * kWide; ++j) {
          const std::uint32_t(&columns)[4] = b[kStep % 2][j / 2];
          ptx::mma<T>(sums[i][j], a[kStep % 2][i], columns[j % 2 * 2], columns[j % 2 * 2 + 1]);
        }
    });
  }
  __device__ __forceinline__ void finish() {}
};

/// The same of two parts, the large one first.
template <class T, class Shape>
struct LargeMultiplierOfParts {
  static constexpr int kHigh = Shape::kRows / 16, kWide = Shape::kColumns / 16, kLast = Shape::kSteps - 1;
  static_assert(kWide > 1);
  const typename Shape::ReaderA reader_a;
  const typename Shape::ReaderB reader_b;
  typename Shape::Sums sums = {}, small = {};  // `small`: in units of kLowUnit
  __device__ __forceinline__ LargeMultiplierOfParts(int row, int column, int lane)
      : reader_a(row, lane), reader_b(column, lane) {}

  __device__ __forceinline__ void begin(const unsigned char*) {}
  template <class Copy, class Done, class Next>
  __device__ __forceinline__ void block(const unsigned char* slot, const Copy& copy, const Done& done, const Next& next) {
    std::uint32_t a[2][kHigh][4], b[2][2][4];  // [part]; 16 columns of B, and the next
    each_step<kLast>(copy);
#pragma unroll 1
    for (int step = 0; step <= kLast; ++step) {
      const auto read_columns = [&](int j) {
#pragma unroll
        for (int p = 0; p < 2; ++p) reader_b.read(b[j % 2][p], slot + 2 * Shape::A::kBytes + p * Shape::B::kBytes, j, step);
      };
#pragma unroll
      for (int p = 0; p < 2; ++p)
#pragma unroll
        for (int i = 0; i < kHigh; ++i) reader_a.read(a[p][i], slot + p * Shape::A::kBytes, i, step);
      read_columns(0);
#pragma unroll
      for (int j = 0; j < kWide; ++j) {
        if (j + 1 < kWide) read_columns(j + 1);
        if (step == kLast && j + 2 == kWide) done();
#pragma unroll
        for (int i = 0; i < kHigh; ++i)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const int column = 2 * j + h;
            const auto add = [&](float(&to)[4], int part_a, int part_b) {
              ptx::mma<T>(to, a[part_a][i], b[j % 2][part_b][h * 2], b[j % 2][part_b][h * 2 + 1]);
            };
            add(small[i][column], 1, 0), add(small[i][column], 0, 1);
            float sum[4] = {};
            add(sum, 0, 0);
#pragma unroll
            for (int c = 0; c < 4; ++c) sums[i][column][c] += sum[c];
          }
      }
    }
    next();
  }
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int i = 0; i < kHigh; ++i)
#pragma unroll
      for (int j = 0; j < 2 * kWide; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) sums[i][j][c] = fmaf(small[i][j][c], kLowUnit, sums[i][j][c]);
  }
};

}  // namespace large_detail

template <class T, LargeTile kTile, int kParts, bool kAlongKA, bool kAlongKB>
__global__ void __launch_bounds__(geometry(kTile).threads(), geometry(kTile).beside)
    mma_large(const __grid_constant__ LargeArguments g) {
  using namespace large_detail;
  using Shape = LargeShape<kTile, kParts, kAlongKA, kAlongKB>;
  constexpr int kSlots = Shape::kInfo.slots;
  extern __shared__ __align__(1024) unsigned char ring[];
  __shared__ ptx::Barrier met;
  if (threadIdx.x == 0) ptx::barrier_init(&met, Shape::kThreads);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const LargePart<Shape> tile{g, warp};
  LargeCopies<Shape, kAlongKA, Shape::kInfo.rows> of_a(g.a, tile.batch, tile.row, tile.rows, tile.first_k, tile.depth);
  LargeCopies<Shape, kAlongKB, Shape::kInfo.columns> of_b(g.b, tile.batch, tile.column, tile.columns, tile.first_k, tile.depth);
  const int blocks = (tile.depth + Shape::kBlockK - 1) / Shape::kBlockK, whole = tile.depth / Shape::kBlockK;
  int copied = 0, filling = 0, reading = 0;  // a block's number; offsets of slots
  const auto after = [](int slot) { return slot + Shape::kSlot == kSlots * Shape::kSlot ? 0 : slot + Shape::kSlot; };
  const auto panel_b = [&] { return ring + filling + kParts * Shape::A::kBytes; };
  /// What step kStep copies of a block: the rest of a step's instructions hide so many copies.
  const auto copy = [&]<int kStep>() {
    constexpr int kOf = Shape::kSteps - 1, kA = decltype(of_a)::kCopies, kB = decltype(of_b)::kCopies;
    of_a.template issue<kA * kStep / kOf, kA*(kStep + 1) / kOf>(ring + filling, copied < whole);
    of_b.template issue<kB * kStep / kOf, kB*(kStep + 1) / kOf>(panel_b(), copied < whole);
  };
  const auto copied_all = [&] {
    of_a.finish(ring + filling, copied < whole, copied < blocks);
    of_b.finish(panel_b(), copied < whole, copied < blocks);
    ++copied, filling = after(filling);
    cp_async_commit();  // an empty group too: the wait counts groups
  };

  ptx::grid_wait();
  ptx::grid_release();
#pragma unroll 1
  for (int i = 0; i < kSlots - 1; ++i) each_step<Shape::kSteps - 1>(copy), copied_all();
  std::conditional_t<kParts == 2, LargeMultiplierOfParts<T, Shape>, LargeMultiplier<T, Shape>> multiplier(tile.warp_row,
                                                                                                          tile.warp_column, lane);
  cp_async_wait<kSlots - 2>();
  __syncthreads();
  multiplier.begin(ring);
  unsigned parity = 0;
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    // Said early and awaited late, so that the warps of an SM's quarter need not meet between their products.
    const auto done = [&] {
      cp_async_wait<kSlots - 3>();  // the next block; the one after it is not committed yet
      ptx::barrier_arrive(&met);
    };
    multiplier.block(ring + reading, copy, done, [&]() -> const unsigned char* {
      copied_all();
      await(&met, parity);
      parity ^= 1, reading = after(reading);
      return block + 1 < blocks ? ring + reading : nullptr;
    });
  }
  cp_async_wait<0>();
  __syncthreads();  // the sums overwrite the slots
  multiplier.finish();
  store_large<T, Shape>(g, tile, multiplier.sums, ring + warp * Shape::kStaging);
}

/// `workspace`: as in launch_large.
inline LargeArguments large_arguments(const Problem& p, const LargePlan& plan, unsigned char* workspace, float* partials) {
  const auto operand = [&](const Operand& x, const TensorOperand& t) {
    unsigned char* const memory = memory_of(t, p, workspace);
    const int lines = static_cast<int>(t.k_major ? t.other : t.inner);
    return LargeOperand{.data = t.copied ? memory + t.copy : x.data,
                        .ld = t.ld,
                        .batch_stride = t.batch_step * t.plane * std::max(1, plan.parts),
                        .part_stride = t.plane,
                        .padded = t.copied,
                        .lines = plan.parts > 0 ? reinterpret_cast<const LineStats*>(memory + t.stats) : nullptr,
                        .lines_step = t.batch_step * lines};
  };
  const TileInfo& tile = info(plan.tile);
  return {.problem = p,
          .a = operand(p.a, plan.a),
          .b = operand(p.b, plan.b),
          .rows = static_cast<unsigned>(ceil_div(p.m, tile.m)),
          .columns = static_cast<unsigned>(ceil_div(p.n, tile.n)),
          .split_blocks = static_cast<int>(plan.split_blocks),
          .partials = partials};
}

template <class T, LargeTile kTile, int kParts>
void launch_large_tile(const LargePlan& plan, const LargeArguments& g, cudaStream_t stream) {
  dispatch_flags(plan.a.k_major, plan.b.k_major, [&]<bool kAlongKA, bool kAlongKB>() {
    constexpr auto kKernel = mma_large<T, kTile, kParts, kAlongKA, kAlongKB>;
    constexpr int kSlot = large_slot_bytes(kTile, kParts);
    allow_all_shared<kKernel>();
    enqueue(kKernel,
            {.blocks = {static_cast<unsigned>(g.rows * g.columns * g.problem.batches), static_cast<unsigned>(plan.splits)},
             .threads = geometry(kTile).threads(),
             .shared_bytes = static_cast<std::size_t>(geometry(kTile).slots * kSlot),
             .early = true},
            stream, g);
  });
}

template <class T, int kParts>
void launch_large_type(const LargePlan& plan, const LargeArguments& g, cudaStream_t stream) {
  dispatch_tile<kLargeTiles.size()>(plan.tile, [&]<LargeTile kTile>() {
    if constexpr (has_two_parts(kTile) == (kParts == 2)) launch_large_tile<T, kTile, kParts>(plan, g, stream);
  });
}

}  // namespace xgemm::matmul
