// Copies operands (Bits: an element's, 16 or 32) that TMA cannot load (misaligned base, strides that are no multiple of 16 bytes,
// no contiguous dim, several batch dims) to [batch][other][ld], ld a multiple of 16 bytes. Both operands of a product in one
// launch. Measured beside loads into the main loop itself: docs/log/matmul.md. Floor: their bytes read and written once.
#pragma once
#include <algorithm>

#include "device/launch.h"
#include "device/ptx/bulk_copy.cuh"
#include "device/ptx/grid.cuh"
#include "device/ptx/ring.cuh"
#include "matmul/kernels/epilogue.cuh"
#include "matmul/kernels/shifted_piece.cuh"
#include "matmul/tensor_plan.h"

namespace xgemm::matmul {

template <class Bits>
struct PackOperand {
  Operand operand;
  std::int64_t inner_stride, other_stride;
  const Bits* end;  ///< of the operand: nothing is read from there on
  Bits* out;
  std::int64_t ld, inner, other, batches;  ///< batches: 1 where all share the operand
  std::int64_t pieces;                     ///< of 16 bytes, in all; 0: the operand is not copied
};

template <class Bits>
struct PackArguments {
  Problem problem;  ///< batch dims
  PackOperand<Bits> operands[2];
  unsigned blocks_first;            ///< pack(): blocks for the first operand
  std::int64_t units_first, units;  ///< pack_lines(): segments of the first operand, and in all
};

inline constexpr int kPackThreads = 256, kPackBatch = 2;  // pieces that a thread has under way

/// A thread two pieces of 16 bytes, neighbours along the inner dim in neighbouring threads.
template <class Bits>
__global__ void __launch_bounds__(kPackThreads) pack(const __grid_constant__ PackArguments<Bits> g) {
  constexpr int kPiece = ShiftedPiece<Bits>::kCount;
  ptx::grid_wait();
  ptx::grid_release();
  const bool second = blockIdx.x >= g.blocks_first;
  const PackOperand<Bits>& x = g.operands[second];
  const unsigned block = second ? blockIdx.x - g.blocks_first : blockIdx.x,
                 blocks = second ? gridDim.x - g.blocks_first : g.blocks_first;
  const std::int64_t per_line = (x.inner + kPiece - 1) / kPiece;
  constexpr std::int64_t kStep = kPackThreads * kPackBatch;
  for (std::int64_t base = block * kStep; base < x.pieces; base += blocks * kStep) {
    ShiftedPiece<Bits> pieces[kPackBatch];
    unsigned shift[kPackBatch];
    int count[kPackBatch];
    Bits* to[kPackBatch];
#pragma unroll
    for (int j = 0; j < kPackBatch; ++j) {
      const std::int64_t i = min(base + j * kPackThreads + static_cast<int>(threadIdx.x), x.pieces - 1);
      const std::int64_t line = x.pieces >> 32 ? i / per_line : static_cast<unsigned>(i) / static_cast<unsigned>(per_line);
      const std::int64_t first = (i - line * per_line) * kPiece, batch = x.batches == 1 ? 0 : line / x.other;
      const Bits* const in = static_cast<const Bits*>(x.operand.data) + batch_offset(g.problem, x.operand, batch) +
                             (line - batch * x.other) * x.other_stride + first * x.inner_stride;
      count[j] = static_cast<int>(min(x.inner - first, std::int64_t{kPiece}));
      to[j] = x.out + line * x.ld + first;  // beyond the last piece, it is written again
      if (x.inner_stride == 1) {
        shift[j] = misalignment(in);
        pieces[j].load(in, count[j], x.end);
      } else {
        Pack<Bits> values;
#pragma unroll
        for (int e = 0; e < kPiece; ++e) values.values[e] = e < count[j] ? in[e * x.inner_stride] : Bits{0};
        pieces[j].low = as_raw(values), shift[j] = 0;
      }
    }
#pragma unroll
    for (int j = 0; j < kPackBatch; ++j) *reinterpret_cast<uint4*>(to[j]) = pieces[j].value(shift[j], count[j]);
  }
}

/// For long lines: a warp takes up to 2 KiB of one at a time. Bulk copies bring aligned blocks to shared memory, several under
/// way and no register held; the lanes shift them on their way out.
template <class Bits>
struct PackLines {
  static constexpr int kWarps = 8, kSlots = 4, kMostBlocks = 3 * 132, kSegment = 2048 / static_cast<int>(sizeof(Bits));
  static constexpr int kSlotBytes = 2048 + 16, kSharedBytes = kWarps * kSlots * (kSlotBytes + 8);
  static constexpr std::int64_t segments(std::int64_t inner) { return (inner + kSegment - 1) / kSegment; }
};

template <class Bits>
__global__ void __launch_bounds__(32 * PackLines<Bits>::kWarps) pack_lines(const __grid_constant__ PackArguments<Bits> g) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using Shape = PackLines<Bits>;
  constexpr int kPiece = ShiftedPiece<Bits>::kCount, kSlots = Shape::kSlots;
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  unsigned char* const slots = shared_memory + warp * kSlots * Shape::kSlotBytes;
  ptx::Barrier* const landed =
      reinterpret_cast<ptx::Barrier*>(shared_memory + Shape::kWarps * kSlots * Shape::kSlotBytes) + warp * kSlots;
  if (lane == 0) {
    for (int s = 0; s < kSlots; ++s) ptx::barrier_init(&landed[s], 1);
    ptx::fence_barrier_init();
  }
  __syncwarp();
  ptx::grid_wait();
  ptx::grid_release();

  struct Segment {
    const Bits* in;
    Bits* out;
    const char *begin, *end;  // whole aligned blocks
    const Bits* stop;
    int count;
  };
  const auto find = [&](std::int64_t unit) {
    const bool second = unit >= g.units_first;
    const PackOperand<Bits>& x = g.operands[second];
    const unsigned per_line = static_cast<unsigned>(Shape::segments(x.inner));
    const auto index = static_cast<unsigned>(second ? unit - g.units_first : unit);
    const std::int64_t line = index / per_line, first = static_cast<std::int64_t>(index % per_line) * Shape::kSegment;
    const std::int64_t batch = x.batches == 1 ? 0 : line / x.other;
    Segment s;
    s.in = static_cast<const Bits*>(x.operand.data) + batch_offset(g.problem, x.operand, batch) +
           (line - batch * x.other) * x.other_stride + first;
    s.out = x.out + line * x.ld + first;
    s.count = static_cast<int>(min(x.inner - first, std::int64_t{Shape::kSegment}));
    s.stop = s.in + s.count;
    s.begin = reinterpret_cast<const char*>(s.in) - misalignment(s.in);
    // Up to the block of the last element; the operand's own last block may be no whole one.
    const char* const last = reinterpret_cast<const char*>(s.stop) + (-misalignment(s.stop) & 15);
    s.end = last <= reinterpret_cast<const char*>(x.end) ? last : last - 16;
    return s;
  };
  const auto start = [&](std::int64_t unit, int slot) {
    if (unit >= g.units || lane != 0) return;
    const Segment s = find(unit);
    const auto bytes = static_cast<std::uint32_t>(s.end - s.begin);
    ptx::barrier_arrive_expect(&landed[slot], bytes);
    if (bytes > 0) ptx::bulk_load(slots + slot * Shape::kSlotBytes, s.begin, bytes, &landed[slot]);
  };
  const std::int64_t step = std::int64_t{gridDim.x} * Shape::kWarps;
  std::int64_t unit = std::int64_t{blockIdx.x} * Shape::kWarps + warp;
  for (int s = 0; s < kSlots; ++s) start(unit + s * step, s);
  ptx::Ring<kSlots> ring;
  for (; unit < g.units; unit += step) {
    const Segment s = find(unit);
    unsigned char* const slot = slots + ring.slot * Shape::kSlotBytes;
    ptx::barrier_wait(&landed[ring.slot], ring.parity);
    const Bits* const rest = reinterpret_cast<const Bits*>(s.end);
    if (lane < s.stop - rest) reinterpret_cast<Bits*>(slot + (s.end - s.begin))[lane] = rest[lane];
    __syncwarp();
    const unsigned shift = misalignment(s.in);
#pragma unroll
    for (int j = 0; j < Shape::kSegment / kPiece / 32; ++j) {
      const int piece = 32 * j + lane, count = s.count - piece * kPiece;
      if (count <= 0) break;
      const ShiftedPiece<Bits> both{load_aligned16(slot + piece * 16), load_aligned16(slot + piece * 16 + 16)};
      *reinterpret_cast<uint4*>(s.out + piece * kPiece) = both.value(shift, min(count, kPiece));
    }
    __syncwarp();
    start(unit + kSlots * step, ring.slot);
    ring.advance();
  }
#endif
}

/// Behind the last element of an operand of `batches` matrices (1: all batches share it) of `other` lines of `inner`.
template <class Bits>
const Bits* end_of(const Problem& p, const Operand& x, std::int64_t inner, std::int64_t inner_stride, std::int64_t other,
                   std::int64_t other_stride) {
  std::int64_t last = (inner - 1) * inner_stride + (other - 1) * other_stride;
  for (int d = 0; d < p.batch_dims; ++d) last += (p.batch[d] - 1) * x.batch_stride[d];
  return static_cast<const Bits*>(x.data) + last + 1;
}

/// An operand for launch_pack(): to where its plan has its copy, if it has one.
template <class Bits>
PackOperand<Bits> pack_operand(const Problem& p, const Operand& x, const TensorOperand& t, std::int64_t line_stride,
                               std::int64_t k_stride, unsigned char* workspace) {
  constexpr std::int64_t kPiece = 16 / sizeof(Bits);
  const std::int64_t inner_stride = t.k_major ? k_stride : line_stride, other_stride = t.k_major ? line_stride : k_stride;
  return {.operand = x,
          .inner_stride = inner_stride,
          .other_stride = other_stride,
          .end = end_of<Bits>(p, x, t.inner, inner_stride, t.other, other_stride),
          .out = reinterpret_cast<Bits*>(workspace + t.copy),
          .ld = t.ld,
          .inner = t.inner,
          .other = t.other,
          .batches = t.batches,
          .pieces = t.copied ? t.batches * t.other * ((t.inner + kPiece - 1) / kPiece) : 0};
}

/// Both in one launch, or none where nothing is to be copied.
template <class Bits>
void launch_pack(const Problem& p, const PackOperand<Bits>& first, const PackOperand<Bits>& second, cudaStream_t stream) {
  using Lines = PackLines<Bits>;
  const auto long_lines = [](const PackOperand<Bits>& x) {
    return x.pieces == 0 || (x.inner_stride == 1 && x.inner >= Lines::kSegment / 4 && x.pieces < std::int64_t{1} << 31);
  };
  const auto blocks = [](const PackOperand<Bits>& x) {
    return static_cast<unsigned>(
        std::min<std::int64_t>((x.pieces + kPackThreads * kPackBatch - 1) / (kPackThreads * kPackBatch), 1 << 20));
  };
  const auto units = [](const PackOperand<Bits>& x) {
    return x.pieces == 0 ? 0 : x.other * x.batches * Lines::segments(x.inner);
  };
  const unsigned all = blocks(first) + blocks(second);
  if (all == 0) return;
  const PackArguments<Bits> g{.problem = p,
                              .operands = {first, second},
                              .blocks_first = blocks(first),
                              .units_first = units(first),
                              .units = units(first) + units(second)};
  if (long_lines(first) && long_lines(second) && allow_shared<pack_lines<Bits>, Lines::kSharedBytes>()) {
    const std::int64_t wanted = (g.units + Lines::kWarps - 1) / Lines::kWarps;
    enqueue(pack_lines<Bits>,
            {.blocks = dim3(static_cast<unsigned>(std::min<std::int64_t>(wanted, Lines::kMostBlocks))),
             .threads = dim3(32 * Lines::kWarps),
             .shared_bytes = Lines::kSharedBytes,
             .early = true},
            stream, g);
  } else {
    enqueue(pack<Bits>, {.blocks = dim3(all), .threads = dim3(kPackThreads), .early = true}, stream, g);
  }
}

}  // namespace xgemm::matmul
