// Copies operands (Bits: an element's, 16 or 32) that TMA cannot load (unaligned base or strides, no contiguous dim, several
// batch dims) to [batch][other][ld], ld a multiple of 16 bytes. Both operands of a product in one launch. Measured against
// loads in the main loop: docs/log/matmul.md. Floor: their bytes read and written once.
#pragma once
#include <algorithm>

#include "device/bytes16.cuh"
#include "device/index_map.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/apply.cuh"
#include "matmul/tensor_operand.h"

namespace xgemm::matmul {

// Loads 16 bytes at any element's address in two steps, so that a thread can have many loads in flight: load() reads the
// aligned blocks that hold them, value() shifts. A block is read only if it holds a wanted element, and nothing is read at or
// after the operand's end.

template <class Bits>
struct ShiftedPiece {
  static constexpr int kCount = 16 / static_cast<int>(sizeof(Bits));
  uint4 low, high;

  /// Loads the aligned block at q; bytes from `end` on are not read.
  __device__ __forceinline__ static uint4 block(const char* q, const char* end) {
    return end - q >= 16 ? load_aligned16(q) : load_front<Bits>(q, static_cast<unsigned>(end - q));
  }

  /// Loads the first `count` elements at p; `end`: one past the operand's last element.
  __device__ __forceinline__ void load(const Bits* p, int count, const Bits* end) {
    const unsigned shift = misalignment(p);
    const char* const q = reinterpret_cast<const char*>(p) - shift;
    low = high = {0, 0, 0, 0};
    if (count > 0) low = block(q, reinterpret_cast<const char*>(end));
    if (static_cast<int>(shift) + count * static_cast<int>(sizeof(Bits)) > 16)
      high = block(q + 16, reinterpret_cast<const char*>(end));
  }

  /// Zeros from `count` elements on; `shift`: p's misalignment.
  __device__ __forceinline__ uint4 value(unsigned shift, int count) const {
    uint4 raw = shift_bytes(low, high, shift);
    if (count < kCount) {
      Pack<Bits> pack = as_pack<Bits>(raw);
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        if (j >= count) pack.values[j] = 0;
      raw = as_raw(pack);
    }
    return raw;
  }
};

template <class Bits>
struct PackOperand {
  Operand operand;
  std::int64_t inner_stride, other_stride;
  const Bits* end;  ///< of the operand: nothing is read at or after it
  Bits* out;
  std::int64_t ld, inner, other, batches;  ///< batches: 1 if all share the operand
  std::int64_t pieces;                     ///< of 16 bytes, in all; 0: the operand is not copied
  ShortDivider per_line;                   ///< pack_lines(): segments of a line
};

template <class Bits>
struct PackArguments {
  int batch_dims;  ///< as Problem's
  std::int64_t batch[kMaxBatchDims];
  PackOperand<Bits> operands[2];
  unsigned blocks_first;            ///< pack(): blocks for the first operand
  std::int64_t units_first, units;  ///< pack_lines(): segments of the first operand, and in all
};

/// Elements from matrix 0 of a batch to matrix `index`.
template <class Bits>
__device__ __forceinline__ std::int64_t matrix_offset(const PackArguments<Bits>& g, const Operand& x, std::int64_t index) {
  std::int64_t offset = 0;
  each_batch_dim(g, index, [&](int d, std::int64_t at) { offset += at * x.batch_stride[d]; });
  return offset;
}

inline constexpr int kPackThreads = 256, kPackBatch = 2;  // kPackBatch: pieces in flight per thread

/// A thread copies two pieces of 16 bytes at a time. Neighbouring threads read neighbours: along the inner dim, or, if that is
/// not contiguous, in neighbouring lines.
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
  const bool transposes = x.inner_stride != 1;
  constexpr std::int64_t kStep = kPackThreads * kPackBatch;
  for (std::int64_t base = block * kStep; base < x.pieces; base += blocks * kStep) {
    ShiftedPiece<Bits> pieces[kPackBatch];
    unsigned shift[kPackBatch];
    int count[kPackBatch];
    Bits* to[kPackBatch];
#pragma unroll
    for (int j = 0; j < kPackBatch; ++j) {
      const std::int64_t i = min(base + j * kPackThreads + static_cast<int>(threadIdx.x), x.pieces - 1);
      const auto divide = [&](std::int64_t a, std::int64_t b) {
        return x.pieces >> 32 ? a / b : std::int64_t{static_cast<unsigned>(a) / static_cast<unsigned>(b)};
      };
      const std::int64_t run = transposes ? x.other : per_line, row = divide(i, run), at = i - row * run;
      const std::int64_t batch = x.batches == 1 ? 0 : divide(row, transposes ? per_line : x.other);
      const std::int64_t piece = transposes ? row - batch * per_line : at, line = transposes ? at : row - batch * x.other;
      const std::int64_t first = piece * kPiece;
      const Bits* const in = static_cast<const Bits*>(x.operand.data) + matrix_offset(g, x.operand, batch) +
                             line * x.other_stride + first * x.inner_stride;
      count[j] = static_cast<int>(min(x.inner - first, std::int64_t{kPiece}));
      to[j] = x.out + (batch * x.other + line) * x.ld + first;  // threads past the last piece write it again
      if (!transposes) {
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

/// For long lines: a warp copies up to 1 KiB of one, a lane two pieces of 16 bytes, neighbours in neighbouring lanes. Small
/// CTAs with few registers, so that some wait for the previous launch on SMs that it still occupies.
template <class Bits>
struct PackLines {
  static constexpr int kWarps = 4, kPieces = 2, kBlocks = 10;  // kBlocks: per SM
  static constexpr int kSegment = kPieces * 512 / static_cast<int>(sizeof(Bits));
  static constexpr std::int64_t segments(std::int64_t inner) { return (inner + kSegment - 1) / kSegment; }
};

template <class Bits>
__global__ void __launch_bounds__(32 * PackLines<Bits>::kWarps, PackLines<Bits>::kBlocks)
    pack_lines(const __grid_constant__ PackArguments<Bits> g) {
  using Shape = PackLines<Bits>;
  constexpr int kPieces = Shape::kPieces;
  constexpr int kPiece = ShiftedPiece<Bits>::kCount;
  fetch_arguments(g);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t unit = std::int64_t{blockIdx.x} * Shape::kWarps + static_cast<int>(threadIdx.x) / 32;
  if (unit >= g.units) return;
  const bool second = unit >= g.units_first;
  const PackOperand<Bits>& x = g.operands[second];
  const int index = static_cast<int>(second ? unit - g.units_first : unit), row = x.per_line.divide(index),
            begin = (index - row * static_cast<int>(x.per_line.divisor)) * Shape::kSegment;
  std::int64_t line = row;
  const Bits* in = static_cast<const Bits*>(x.operand.data) + begin;
  if (x.batches > 1) {
    const std::int64_t batch = line / x.other;
    line -= batch * x.other, in += matrix_offset(g, x.operand, batch);
  }
  in += line * x.other_stride;
  Bits* const out = x.out + row * x.ld + begin;
  const Bits* const end = x.end;
  const int count = static_cast<int>(min(x.inner - begin, std::int64_t{Shape::kSegment}));
  const unsigned shift = misalignment(in);
  ptx::grid_wait();
  ptx::grid_release();
  ShiftedPiece<Bits> pieces[kPieces];
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int first = (32 * j + lane) * kPiece;
    pieces[j].load(in + first, count - first, end);
  }
#pragma unroll
  for (int j = 0; j < kPieces; ++j) {
    const int first = (32 * j + lane) * kPiece;
    if (first < count) *reinterpret_cast<uint4*>(out + first) = pieces[j].value(shift, count - first);
  }
}

/// An operand for launch_pack(); nothing to copy if its plan has no copy.
template <class Bits>
PackOperand<Bits> pack_operand(const Problem& p, const OperandLines& x, const TensorOperand& t, unsigned char* workspace) {
  constexpr std::int64_t kPiece = 16 / sizeof(Bits);
  const std::int64_t inner_stride = t.k_major ? x.k_stride : x.stride, other_stride = t.k_major ? x.stride : x.k_stride;
  std::int64_t last = (t.inner - 1) * inner_stride + (t.other - 1) * other_stride;
  for (int d = 0; d < p.batch_dims; ++d) last += (p.batch[d] - 1) * x.operand.batch_stride[d];
  return {.operand = x.operand,
          .inner_stride = inner_stride,
          .other_stride = other_stride,
          .end = static_cast<const Bits*>(x.operand.data) + last + 1,
          .out = reinterpret_cast<Bits*>(workspace + t.copy),
          .ld = t.ld,
          .inner = t.inner,
          .other = t.other,
          .batches = t.batches,
          .pieces = t.copied ? t.batches * t.other * ((t.inner + kPiece - 1) / kPiece) : 0,
          .per_line = {}};
}

/// Packs both in one launch; none if nothing is to be copied.
template <class Bits>
void launch_pack(const Problem& p, const PackOperand<Bits>& first, const PackOperand<Bits>& second, cudaStream_t stream) {
  using Lines = PackLines<Bits>;
  const auto long_lines = [](const PackOperand<Bits>& x) {
    return x.pieces == 0 ||
           (x.inner_stride == 1 && x.inner * static_cast<std::int64_t>(sizeof(Bits)) >= 512 && x.pieces < std::int64_t{1} << 31);
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
  PackArguments<Bits> g{.batch_dims = p.batch_dims,
                        .batch = {},
                        .operands = {first, second},
                        .blocks_first = blocks(first),
                        .units_first = units(first),
                        .units = units(first) + units(second)};
  std::copy_n(p.batch, kMaxBatchDims, g.batch);
  for (PackOperand<Bits>& x : g.operands) x.per_line = ShortDivider::of(Lines::segments(std::max<std::int64_t>(x.inner, 1)));
  if (long_lines(first) && long_lines(second)) {
    enqueue(pack_lines<Bits>, early_grid((g.units + Lines::kWarps - 1) / Lines::kWarps, 32 * Lines::kWarps), stream, g);
  } else {
    enqueue(pack<Bits>, early_grid(all, kPackThreads), stream, g);
  }
}

}  // namespace xgemm::matmul
