// From the accumulators of a wgmma warp to memory. Four ways, equal in every bit, and store_gated:
//   boxes  alpha and bias only (half precision: any epilogue whose C and residual keep pairs of columns together), moderate
//          scales, rows of C at multiples of 16 bytes: converted, written swizzled to one of two 2 KiB buffers (16 rows of 128
//          bytes), stored by TMA, which clips the edges, while the warp goes on;
//   ragged the same with alpha, bias and activation (none in tiles that are no multiple of 64 wide) where rows of C start
//          anywhere: from the buffers in aligned pieces of 16 bytes;
//   rows   any epilogue, any n: fp32 through 16 rows of 64 columns in 4 KiB of the warp's own; then a few rows at a time, two
//          columns a lane, so that C, residual and out are accessed in whole lines and the activation's chains of instructions
//          overlap;
//   merge  splits of K: the sums go, 8 columns at a time, to the CTA of the cluster that owns these, which adds the parts in
//          order and stores them as `rows`.
#pragma once
#include <type_traits>

#include "device/bytes16.cuh"
#include "device/ptx/cluster_exchange.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/vector.cuh"
#include "matmul/epilogue/apply.cuh"

namespace xgemm::matmul::wgmma_detail {

/// Largest exponent of factors that may be taken one after the other. Sums are below 2^53 and multiples of 2^-71 (products of
/// scaled fp16 parts are of 2^-48, promotion adds 2^-23 of one): the first product is exact, the second rounds, as unscale().
inline constexpr int kModerate = 60;

/// By fillers() threads: the factors that take the scales out of a tile's rows, then of its columns, as 2^e's bits (outside a
/// float's range: e + 127 in the bits from 23 on, sign included); then for each warp whether all it saw are moderate.
template <class Config>
__device__ __forceinline__ void fill_scales(const WgmmaArguments& g, int row, int column, int batch, int thread, int* scales) {
  constexpr int kTileM = Config::kValue.tile_m, kLines = kTileM + Config::kValue.tile_n;
  const int m = static_cast<int>(g.problem.m), n = static_cast<int>(g.problem.n);
  const int first_a = batch * g.batch_step_a * m, first_b = batch * g.batch_step_b * n;  // the plan keeps these in 32 bits
  bool moderate = true;
#pragma unroll 1  // the producer's registers are few
  for (int i = thread; i < kLines; i += Config::kValue.fillers()) {
    const LineStats* const lines = i < kTileM ? g.lines_a : g.lines_b;
    const int line = i < kTileM ? first_a + min(row + i, m - 1) : first_b + min(column + i - kTileM, n - 1);
    const int e = -split_exponent(lines[line].max_bits);
    moderate = moderate && e >= -kModerate && e <= kModerate;
    scales[i] = (e + 127) << 23;
  }
  moderate = __all_sync(0xffffffffu, moderate);
  if (thread % 32 == 0) scales[kLines + thread / 32] = moderate;
}

/// The same for the bias of a tile's columns of C, as floats.
template <class Out, class Config>
__device__ __forceinline__ void fill_bias(const WgmmaArguments& g, int column, int thread, int* shared) {
  constexpr WgmmaConfig kConfig = Config::kValue;
  const Operand& bias = g.problem.bias;
  const int n = static_cast<int>(kConfig.mirrored ? g.problem.m : g.problem.n);
#pragma unroll 1
  for (int i = thread; i < (kConfig.mirrored ? kConfig.tile_m : kConfig.tile_n); i += kConfig.fillers()) {
    const Out* const at = static_cast<const Out*>(bias.data) + min(column + i, n - 1) * bias.col_stride;
    reinterpret_cast<float*>(shared)[i] = convert<float>(*at);
  }
}

/// What the epilogue reads of this batch, found once a tile: a short loop, because the tile's code must stay in the instruction
/// cache.
template <class Out>
__device__ __forceinline__ Epilogue<Out, float> tile_epilogue(const Problem& p, int batch) {
  auto e = make_epilogue_at<Out, float>(p);
  unsigned index = static_cast<unsigned>(batch);
#pragma unroll 1
  for (int d = p.batch_dims - 1; d >= 0; --d) {
    const unsigned size = static_cast<unsigned>(p.batch[d]), here = index % size;
    index /= size;
    if (e.c) e.c += here * p.c.batch_stride[d];
    if (e.bias) e.bias += here * p.bias.batch_stride[d];
    if (e.residual) e.residual += here * p.residual.batch_stride[d];
  }
  return e;
}

/// The two columns of 64 that a lane takes in store_rows: neighbours where rows of C keep pairs together, else 32 apart, so that
/// a warp's narrow stores are side by side.
struct LaneColumns {
  bool paired;
  int first, second;
  __device__ __forceinline__ LaneColumns(const Problem& p, int lane)
      : paired(p.n % 2 == 0), first(paired ? 2 * lane : lane), second(paired ? first + 1 : first + 32) {}
  /// Of 8, as accumulators have them.
  __device__ __forceinline__ LaneColumns(const Problem& p, int quad, std::true_type)
      : paired(p.n % 2 == 0), first(2 * quad), second(first + 1) {}
};

/// Stores `rows` rows of C, `row` and so on, kRowStep apart, kRows at a time; `base` is the first of 64 columns, those from
/// `column_end` on are not this warp's; `sums(r)` gives row + r's sums in this lane's columns. Scaled: `row_scales` and
/// `column_scales` as fill_scales() left them, from that row and that column on; none: the lines' statistics are read.
template <class Out, bool kScaled, int kRows, int kRowStep = 1, class Sums>
__device__ __forceinline__ void store_rows(const WgmmaArguments& g, const Epilogue<Out, float>& e, int row, int rows, int base,
                                           const LaneColumns& columns, int column_end, int batch, const Sums& sums,
                                           const int* row_scales = nullptr, const int* column_scales = nullptr) {
  const Problem& p = g.problem;
  const int n = min(static_cast<int>(p.n), column_end), at = base + columns.first;
  if (at >= n) return;
  const bool both = base + columns.second < n;
  const int other = both ? base + columns.second : at;
  Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(batch) * p.m * p.n;
  const LineStats* lines_a = nullptr;
  int exponents[2] = {};
  if constexpr (kScaled) {
    lines_a = g.lines_a + static_cast<std::int64_t>(batch) * g.batch_step_a * p.m;
    const LineStats* const lines_b = g.lines_b + static_cast<std::int64_t>(batch) * g.batch_step_b * p.n;
    if (row_scales) {
      exponents[0] = (column_scales[columns.first] >> 23) - 127;
      exponents[1] = (column_scales[both ? columns.second : columns.first] >> 23) - 127;
    } else {
      exponents[0] = -split_exponent(lines_b[at].max_bits);
      exponents[1] = -split_exponent(lines_b[other].max_bits);
    }
  }
  float bias[2] = {};
  if (e.bias) {
    bias[0] = convert<float>(e.bias[at * e.bias_col]);
    bias[1] = convert<float>(e.bias[other * e.bias_col]);
  }
#pragma unroll 1
  for (int r0 = 0; r0 < rows; r0 += kRows) {
    float x[2 * kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int index = min(r0 + i, rows - 1), r = kRowStep * index;
      const Vector<float, 2> here = sums(index);
      int exponent = 0;
      if constexpr (kScaled) exponent = row_scales ? (row_scales[r] >> 23) - 127 : -split_exponent(lines_a[row + r].max_bits);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const float value = kScaled ? unscale(here[c], exponent + exponents[c]) : here[c];
        x[2 * i + c] = fmaf(e.alpha, value, 0.f);  // -0 to +0, see epilogue.cuh
      }
    }
    if (e.c) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        const std::int64_t r = row + kRowStep * min(r0 + i / 2, rows - 1), c = i % 2 ? other : at;
        x[i] = fmaf(e.beta, convert<float>(e.c[r * e.c_row + c * e.c_col]), x[i]);
      }
    }
    if (e.bias) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) x[i] = plus(x[i], bias[i % 2]);
    }
    activate_all<Out>(x, e.activation);
    if (e.residual) {
#pragma unroll
      for (int i = 0; i < 2 * kRows; ++i) {
        const std::int64_t r = row + kRowStep * min(r0 + i / 2, rows - 1), c = i % 2 ? other : at;
        x[i] = plus(x[i], convert<float>(e.residual[r * e.residual_row + c * e.residual_col]));
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (r0 + i >= rows) break;
      Out* const target = out + static_cast<std::int64_t>(row + kRowStep * (r0 + i)) * p.n;
      const Vector<Out, 2> results{{convert<Out>(x[2 * i]), convert<Out>(x[2 * i + 1])}};
      if (columns.paired && both) {
        store_vector(target + at, results);
      } else {
        target[at] = results[0];
        if (both) target[other] = results[1];
      }
    }
  }
}

/// A warp's boxes of C, 16 rows of 64 half-precision columns each, in one of two buffers of 2 KiB as TMA's 128-byte swizzle has
/// it, to rows that start anywhere: in aligned pieces of 16 bytes, of which each row's first holds what the box before it left
/// (it is in the other buffer), and by elements at the tile's two sides. TMA stores aligned pieces only, wherever its box begins.
/// A lane has a piece of row lane / 8, or 4 rows further, and of the eighth after it, which starts alike.
template <class Out>
class RaggedRows {
  uint4 low[2], high[2];
  Out* line;
  std::int64_t pitch;
  std::uint32_t from_high, from_low;
  int lane, r, skew, rows;
  bool low_before;  // its low half is in the other buffer

  __device__ __forceinline__ std::uint32_t at(int p) const {  // piece p of a buffer's row
    return static_cast<unsigned>(r * 128 + ((p ^ r) & 7) * 16);
  }

 public:
  /// `first_line`: the tile's first element in row lane / 8; `rows` exist; `s`: 0 or 1, rows 4 s further.
  __device__ __forceinline__ RaggedRows(std::uint32_t buffers, Out* first_line, std::int64_t pitch, int rows, int lane, int s)
      : line(first_line + 4 * s * pitch), pitch(pitch), lane(lane), r(lane / 8 + 4 * s), rows(rows) {
    skew = static_cast<int>(misalignment(line)) / 2;
    const int piece = lane % 8;
    low_before = piece == 0 && skew != 0;
    from_high = buffers + at(piece), from_low = buffers + at(piece - (skew ? 1 : 0)) + (low_before ? 2048 : 0);
  }

  /// Asks for the pieces of the box in the buffer at `offset`. What follows may write the other buffer after a __syncwarp.
  __device__ __forceinline__ void load(int offset) {
    const std::uint32_t here = from_high + static_cast<unsigned>(offset),
                        there = from_low + static_cast<unsigned>(low_before ? -offset : offset);
#pragma unroll
    for (int i = 0; i < 2; ++i) low[i] = ptx::load_shared16(there + 1024 * i), high[i] = ptx::load_shared16(here + 1024 * i);
  }

  /// To `column` of the tile and what follows; `columns` exist from there on, up to the tile's end.
  __device__ __forceinline__ void store(int column, int columns) const {
    const int c = 8 * (lane % 8) - skew;
    const bool whole = c + 8 <= columns && column + c >= 0;
    const unsigned shift = static_cast<unsigned>(-2 * skew) & 15;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      ptx::store_global16_if(line + 8 * i * pitch + (column + c), shift_bytes(low[i], high[i], shift), whole && r + 8 * i < rows);
  }

  /// What no whole piece holds, of the box at `offset`; before the other buffer is written.
  __device__ __forceinline__ void store_ends(std::uint32_t buffers, int offset, int column, int columns) const {
    if (column > 0 && columns > 64) return;
    const int piece = lane % 8;
    const auto element = [&](int e, bool exists) {
      const int p = (e + 8) / 8 - 1;
      const std::uint32_t from = buffers + at(p) + static_cast<unsigned>((p < 0 ? offset ^ 2048 : offset) + (e & 7) * 2);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (!exists || r + 8 * i >= rows) continue;
        reinterpret_cast<std::uint16_t*>(line)[8 * i * pitch + column + e] = ptx::load_shared2(from + 1024 * i);
      }
    };
    if (column == 0) element(piece, skew && piece < min(8 - skew, columns));
    const int tail = (columns + skew) / 8 * 8 - skew + piece;
    if (columns <= 64) element(tail, tail < columns && (tail >= 0 || column > 0));
  }
};

/// Where RaggedRows has a lane begin.
template <class Out>
__device__ __forceinline__ Out* ragged_line(const WgmmaArguments& g, int batch, int row, int column, int lane) {
  return static_cast<Out*>(g.problem.out) +
         (static_cast<std::int64_t>(batch) * static_cast<int>(g.problem.m) + row + lane / 8) * g.problem.n + column;
}

/// A warp's 16 rows of results on their way to C by TMA, kTurn columns at a time, through two buffers of 16 rows of kBytes, 128
/// or 64: pieces of 16 bytes of row r are permuted by r % 8, by r / 2 % 4, as TMA's swizzle of so many bytes does.
template <class Out, int kTurn, int kBytes = 128>
class BoxStore {
  static constexpr int kTurns = kBytes / static_cast<int>(sizeof(Out)) / kTurn;  // of a box
  static constexpr bool kMatrices = sizeof(Out) == 2;
  unsigned char* staging;
  std::uint32_t place;  // this lane's, of a buffer's first columns; other columns' pieces by exclusive-or
  int lane;

 public:
  __device__ __forceinline__ BoxStore(unsigned char* staging, int lane) : staging(staging), lane(lane) {
    const int r = kMatrices ? lane % 16 : lane / 4, piece = kMatrices ? lane / 16 : lane % 4 / 2;
    place = ptx::shared_address(staging) + static_cast<unsigned>(r * kBytes + (piece ^ (kBytes == 128 ? r % 8 : r / 2 % 4)) * 16 +
                                                                 (kMatrices ? 0 : lane % 2 * 8));
  }
  /// x: of column 8 (i / 4) + 2 (lane % 4) + i % 2 and row lane / 4 + 8 (i % 4 / 2), as accumulators have them. The box leaves
  /// with its last turn, or where `last` says that no column follows; its first element is C's (column, row, batch).
  __device__ __forceinline__ void put(const float (&x)[kTurn / 2], int turn, bool last, const WgmmaArguments& g, int column,
                                      int row, int batch, int column_end, auto may_be_ragged) const {
    const int buffer = turn / kTurns % 2 * 2048;
    if (turn % kTurns == 0) {
      // The store before the last read this buffer; a tile before may have ended with either buffer, a main loop ago.
      if (ptx::elect_one()) turn == 0 ? ptx::tma_store_wait_read<0>() : ptx::tma_store_wait_read<1>();
      __syncwarp();
    }
#pragma unroll
    for (int j = 0; j < kTurn / 16; ++j) {
      const std::uint32_t target =
          (place + static_cast<unsigned>(buffer)) ^ static_cast<unsigned>((turn % kTurns * kTurn + 16 * j) * sizeof(Out));
      if constexpr (kMatrices) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          pairs[i] = __builtin_bit_cast(std::uint32_t,
                                        Vector<Out, 2>{{convert<Out>(x[8 * j + 2 * i]), convert<Out>(x[8 * j + 2 * i + 1])}});
        ptx::store_matrices(target, pairs);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          ptx::store_pair((target ^ static_cast<unsigned>(i / 2 * 32)) + static_cast<unsigned>(i % 2 * 1024), x[8 * j + 2 * i],
                          x[8 * j + 2 * i + 1]);
      }
    }
    if (turn % kTurns == kTurns - 1 || last) {
      if constexpr (kMatrices && may_be_ragged && kBytes == 128) {
        if (g.ragged) {
          __syncwarp();
          const int first = turn / kTurns * kTurns * kTurn;  // column of the tile
          Out* const line = ragged_line<Out>(g, batch, row, column - first, lane);
          const int rows = min(16, static_cast<int>(g.problem.m) - row);
#pragma unroll
          for (int s = 0; s < 2; ++s) {
            RaggedRows<Out> pieces(ptx::shared_address(staging), line, g.problem.n, rows, lane, s);
            pieces.load(buffer);
            pieces.store(first, column_end - column);
            pieces.store_ends(ptx::shared_address(staging), buffer, first, column_end - column);
          }
          return;
        }
      }
      ptx::fence_async_shared();
      __syncwarp();
      const int c0 = agreed(column), c1 = agreed(row), c2 = agreed(batch),
                from = agreed(static_cast<int>(ptx::shared_address(staging)) + buffer);
      if (ptx::elect_one()) {
        ptx::tma_store(&g.out, __cvta_shared_to_generic(static_cast<unsigned>(from)), c0, c1, c2);
        ptx::tma_store_commit();
      }
    }
  }
};

/// A warp's 16 rows of a tile to rows that start anywhere; alpha and bias only. A box at a time, because what follows the choice
/// of its registers must stay in the instruction cache; a box is converted while the one before it is on its way from shared
/// memory to the lanes.
template <class Out, int kTileN, bool kBias>
__device__ __forceinline__ void store_ragged_tile(const float (&sums)[kTileN / 2], const WgmmaArguments& g, int row, int column,
                                                  int column_end, int batch, int lane, unsigned char* staging,
                                                  const float* shared_bias) {
  constexpr int kBoxes = (kTileN + 63) / 64;
  const float alpha = g.alpha;
  const int rows = min(16, static_cast<int>(g.problem.m) - row), r = lane % 16;
  const std::uint32_t buffers = ptx::shared_address(staging), place = static_cast<unsigned>(r * 128 + (lane / 16 ^ (r % 8)) * 16);
  const auto convert_box = [&](int box) {
    const std::uint32_t buffer = buffers + static_cast<unsigned>(box % 2 * 2048);
#pragma unroll
    for (int known = 0; known < kBoxes; ++known) {  // registers have no run-time index
      if (known != box) continue;
      __syncwarp();  // the buffer has been read; and so this is a branch
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (64 * known + 16 * j >= kTileN) break;
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          Vector<float, 2> x;
#pragma unroll
          for (int c = 0; c < 2; ++c)
            x[c] = fmaf(alpha, sums[32 * known + 8 * j + 2 * i + c], 0.f);  // -0 to +0, see epilogue.cuh
          if constexpr (kBias) {
            const auto add = load_vector<2>(shared_bias + 64 * known + 16 * j + 8 * (i / 2) + 2 * (lane % 4));
            x[0] = plus(x[0], add[0]), x[1] = plus(x[1], add[1]);
          }
          pairs[i] = __builtin_bit_cast(std::uint32_t, Vector<Out, 2>{{convert<Out>(x[0]), convert<Out>(x[1])}});
        }
        ptx::store_matrices((buffer + place) ^ static_cast<unsigned>(32 * j), pairs);
      }
    }
    __syncwarp();
  };
  Out* const line = ragged_line<Out>(g, batch, row, column, lane);
  convert_box(0);
#pragma unroll 1
  for (int at = 0; column + at < column_end; at += 64) {
    const int columns = column_end - column - at, offset = at % 128 * 32;
    int here = lane;
    asm volatile("" : "+r"(here));  // else what follows from it waits in registers, which spill
    RaggedRows<Out> upper(buffers, line, g.problem.n, rows, here, 0), lower(buffers, line, g.problem.n, rows, here, 1);
    upper.load(offset), lower.load(offset);
    upper.store_ends(buffers, offset, at, columns), lower.store_ends(buffers, offset, at, columns);
    if (columns > 64) convert_box(at / 64 + 1);
    upper.store(at, columns), lower.store(at, columns);
  }
}

/// May an activation go the way of boxes? fp32's are long: a turn's would spill, and leave the instruction cache.
template <class Out>
inline constexpr bool kActivatesBoxes = sizeof(Out) == 2;

/// `row` is the first of the warp's 16 rows, `column` the first of the tile's columns; `staging` 4 KiB, a multiple of 1024.
/// The sums are not changed: they may be wgmma's accumulators, and ptxas runs each wgmma alone where anything else writes them.
template <class Out, class Config>
__device__ __forceinline__ void store_tile(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g, int row,
                                           int column, int batch, int lane, unsigned char* staging, const int* scales,
                                           int row_in_tile) {
  constexpr int kTileN = Config::kValue.tile_n;
  constexpr bool kScaled = Config::kValue.scaled;
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = min(static_cast<int>(p.n), column + g.tile_columns);
  if (row >= m) return;
  const int quad = lane % 4, first = lane / 4;  // the lane's columns 2 quad, 2 quad + 1 of each 8; its rows first, first + 8
  constexpr int kTileM = Config::kValue.tile_m;
  if constexpr (Config::kValue.may_straight()) {
    if (g.straight) {
      const float alpha = g.alpha;
      const Out* const bias = static_cast<const Out*>(p.bias.data);
      Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j) {
        const int c = column + 8 * j + 2 * quad;
        if (c >= n) break;
        float add[2] = {};
        if (bias)
          add[0] = convert<float>(bias[c * p.bias.col_stride]), add[1] = convert<float>(bias[(c + 1) * p.bias.col_stride]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int r = row + first + 8 * h;
          if (r >= m) break;
          float x[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            x[i] = fmaf(alpha, sums[4 * j + 2 * h + i], 0.f);
            if (bias) x[i] = plus(x[i], add[i]);
          }
          store_vector(out + static_cast<std::int64_t>(r) * p.n + c, Vector<Out, 2>{{convert<Out>(x[0]), convert<Out>(x[1])}});
        }
      }
      return;
    }
  }
  bool moderate = true;
  if constexpr (kScaled) moderate = scales[kTileM + kTileN] & scales[kTileM + kTileN + 1] & scales[kTileM + kTileN + 2];
  if (kTileN * sizeof(Out) >= WgmmaBoxes<Config>::kBoxC && g.boxes && moderate) {
    const int* const column_scales = scales + kTileM + 2 * quad;
    float row_factors[2];
    if constexpr (kScaled) {
#pragma unroll
      for (int h = 0; h < 2; ++h) row_factors[h] = __int_as_float(scales[row_in_tile + first + 8 * h]);
    }
    const float alpha = g.alpha;
    constexpr int kTurn = 32, kPairs = kTurn / 8;  // columns at a time: a lane's 16 results
    constexpr int kBoxBytes = WgmmaBoxes<Config>::kBoxC;
    constexpr int kBox = kBoxBytes / static_cast<int>(sizeof(Out)) / kTurn, kTurns = kTileN / kTurn;
    const Out* const bias = static_cast<const Out*>(p.bias.data);
    const float* const shared_bias = reinterpret_cast<const float*>(scales) + 2 * quad;
    const BoxStore<Out, kTurn, kBoxBytes> boxes(staging, lane);
    // C and residual in the places of a turn's sums; asked for before they are needed.
    struct Places {
      Vector<Out, 2> pairs[2 * kPairs];
      __device__ __forceinline__ float operator[](int i) const { return convert<float>(pairs[i / 2][i % 2]); }
    };
    const auto fetch = [&](const Operand& from, int at) {
      Places places{};
      if (from.data == nullptr) return places;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const Out* const line =
            static_cast<const Out*>(from.data) + min(row + first + 8 * h, m - 1) * from.row_stride + at + 2 * quad;
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          if (at + 8 * j + 2 * quad < n) places.pairs[2 * j + h] = load_vector<2>(line + 8 * j);
        }
      }
      return places;
    };
    enum class Rest { none, activation, all };  // of the epilogue
    const auto store_turn = [&](float(&x)[4 * kPairs], int turn, auto rest) {
      constexpr Rest kRest = decltype(rest)::value;
      constexpr bool kWhole = kRest == Rest::all;
      const int at = column + turn * kTurn;
      Places c, residual;
      if constexpr (kWhole) c = fetch(p.c, at), residual = fetch(p.residual, at);
#pragma unroll
      for (int i = 0; i < 4 * kPairs; ++i) {
        if constexpr (kScaled)
          x[i] = x[i] * row_factors[i / 2 % 2] * __int_as_float(column_scales[turn * kTurn + i / 4 * 8 + i % 2]);
        x[i] = fmaf(alpha, x[i], 0.f);
      }
      if constexpr (kWhole) {
        if (p.c.data) {
          const float beta = static_cast<float>(p.beta);
#pragma unroll
          for (int i = 0; i < 4 * kPairs; ++i) x[i] = fmaf(beta, c[i], x[i]);
        }
      }
      if (bias) {
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          Vector<float, 2> add;
          if constexpr (Config::kValue.shares_bias()) {
            add = load_vector<2>(shared_bias + turn * kTurn + 8 * j);
          } else {
#pragma unroll
            for (int c = 0; c < 2; ++c) add[c] = convert<float>(bias[min(at + 8 * j + 2 * quad + c, n - 1) * p.bias.col_stride]);
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) x[4 * j + i] = plus(x[4 * j + i], add[i % 2]);
        }
      }
      if constexpr (kRest != Rest::none) activate_all<Out>(x, p.activation);
      if constexpr (kWhole) {
        if (p.residual.data) {
#pragma unroll
          for (int i = 0; i < 4 * kPairs; ++i) x[i] = plus(x[i], residual[i]);
        }
      }
      boxes.put(x, turn, at + kTurn >= n, g, column + turn / kBox * kBox * kTurn, row, batch, n,
                std::bool_constant<kRest == Rest::activation>{});
    };
    if constexpr (kActivatesBoxes<Out> && Config::kValue.shares_bias() && kTileN >= 64) {
      if (g.ragged && p.activation == Activation::none) {
        const auto ragged = [&](auto with_bias) {
          store_ragged_tile<Out, kTileN, decltype(with_bias)::value>(sums, g, row, column, n, batch, lane, staging,
                                                                     reinterpret_cast<const float*>(scales));
        };
        return bias ? ragged(std::true_type{}) : ragged(std::false_type{});
      }
    }
    if constexpr (kActivatesBoxes<Out>) {
      // In loops, as these are long: unrolled, they would leave the instruction cache.
      const auto store_turns = [&](auto rest) {
#pragma unroll 1
        for (int turn = 0; turn < kTurns && column + turn * kTurn < n; ++turn) {
          float x[4 * kPairs];
#pragma unroll
          for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index
            if (known != turn) continue;
            __syncwarp();  // so that this is a branch: predicated moves of all turns' registers take seven times as many
#pragma unroll
            for (int i = 0; i < 4 * kPairs; ++i) x[i] = sums[4 * known * kPairs + i];
          }
          store_turn(x, turn, rest);
        }
      };
      if (p.c.data || p.residual.data) return store_turns(std::integral_constant<Rest, Rest::all>{});
      if (p.activation != Activation::none || g.ragged) return store_turns(std::integral_constant<Rest, Rest::activation>{});
    }
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (column + turn * kTurn >= n) break;
      float x[4 * kPairs];
#pragma unroll
      for (int i = 0; i < 4 * kPairs; ++i) x[i] = sums[4 * turn * kPairs + i];
      store_turn(x, turn, std::integral_constant<Rest, Rest::none>{});
    }
    return;
  }
  const int rows = min(16, m - row);
  const LaneColumns columns(p, lane);
  const auto epilogue = tile_epilogue<Out>(p, batch);
  if (kScaled && ptx::elect_one()) ptx::tma_store_wait_read<0>();  // the tile before may have left by TMA
  constexpr int kRounds = (kTileN + 63) / 64, kPieces = (kTileN < 64 ? kTileN : 64) / 8;
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    if (column + 64 * round >= n) break;
    __syncwarp();
#pragma unroll
    for (int known = 0; known < kRounds; ++known) {  // registers have no run-time index; all that follows stands in the code once
      if (known != round) continue;
#pragma unroll
      for (int j = 0; j < kPieces; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int i = 4 * (kPieces * known + j) + 2 * h;
          if (i >= kTileN / 2) break;  // half a round
          store_vector(
              reinterpret_cast<float*>(staging + (first + 8 * h) * 256 + ((2 * j + quad / 2) ^ first) * 16 + quad % 2 * 8),
              Vector<float, 2>{{sums[i], sums[i + 1]}});
        }
    }
    __syncwarp();
    const auto place = [&](int r, int c) {
      return reinterpret_cast<const float*>(staging + r * 256 + ((c / 4) ^ (r % 8)) * 16 + c % 4 * 4);
    };
    store_rows<Out, kScaled, kScaled ? 2 : 4>(
        g, epilogue, row, rows, column + 64 * round, columns, column + g.tile_columns, batch,
        [&](int r) -> Vector<float, 2> {
          if (columns.paired) return load_vector<2>(place(r, columns.first));
          return {{*place(r, columns.first), *place(r, columns.second)}};
        },
        scales + row_in_tile, scales + Config::kValue.tile_m + 64 * round);
  }
}

/// A tile of C^T, for alpha, bias and activation: `row` and `column` are C's. Matrices of eight rows of C by eight columns are
/// turned round on their way to the warpgroup's staging, some rows of its 64 columns at a time, swizzled as TMA does it; they
/// leave by TMA, eight rows a box, or element by element where rows of C do not start at multiples of 16 bytes.
template <class Out, class Config>
__device__ __forceinline__ void store_mirrored(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g, int row,
                                               int column, int batch, int warp, int lane, unsigned char* staging,
                                               const float* shared_bias) {
  constexpr int kTileN = Config::kValue.tile_n, kTurn = 32, kTurns = kTileN / kTurn, kRowBytes = 128;
  constexpr int kRound = 2 * WgmmaBoxes<Config>::kStagingBytes / kRowBytes, kRoundTurns = kRound / kTurn;  // rows of a buffer
  const Problem& p = g.problem;
  const int consumer = warp / 4, quarter = warp % 4, barrier = kStoreBarrier + consumer;
  column += 64 * consumer;
  const int columns = static_cast<int>(p.m), rows_end = min(static_cast<int>(p.n), row + g.tile_columns);
  if (column >= columns) return;
  staging += 4 * consumer * WgmmaBoxes<Config>::kStagingBytes;
  const std::uint32_t place =
      ptx::shared_address(staging) +
      static_cast<unsigned>((lane / 16 * 8 + lane % 8) * kRowBytes + ((2 * quarter + lane / 8 % 2) ^ (lane % 8)) * 16);
  float add[2] = {};
  if (g.shares_bias) {
#pragma unroll
    for (int h = 0; h < 2; ++h) add[h] = shared_bias[64 * consumer + 16 * quarter + lane / 4 + 8 * h];
  }
  const float alpha = g.alpha;
  // x: of row 8 (i / 4) + 2 (lane % 4) + i % 2 of the turn's, column lane / 4 + 8 (i / 2 % 2) of the warp's.
  const auto store_turn = [&](float(&x)[kTurn / 2], int turn, auto activates) {
    const int here = row + turn * kTurn, first = row + turn / kRoundTurns * kRound;
    const int buffer = turn / kRoundTurns % 2 * (kRound * kRowBytes);
    if (turn % kRoundTurns == 0) {
      // The round before the last read this buffer; a tile before may have ended with either, a main loop ago.
      if (ptx::elect_one()) turn == 0 ? ptx::tma_store_wait_read<0>() : ptx::tma_store_wait_read<1>();
      __syncwarp();
      ptx::named_barrier_sync(barrier, 128);  // nobody reads the staging any more
    }
#pragma unroll
    for (int i = 0; i < kTurn / 2; ++i) {
      x[i] = fmaf(alpha, x[i], 0.f);  // -0 to +0, see epilogue.cuh
      if (g.shares_bias) x[i] = plus(x[i], add[i / 2 % 2]);
    }
    if constexpr (activates) activate_all<Out>(x, p.activation);
#pragma unroll
    for (int j = 0; j < kTurn / 16; ++j) {
      std::uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        pairs[i] = __builtin_bit_cast(std::uint32_t,
                                      Vector<Out, 2>{{convert<Out>(x[8 * j + 2 * i]), convert<Out>(x[8 * j + 2 * i + 1])}});
      ptx::store_matrices_transposed(place + static_cast<unsigned>(buffer + (turn % kRoundTurns * kTurn + 16 * j) * kRowBytes),
                                     pairs);
    }
    if (turn % kRoundTurns != kRoundTurns - 1 && here + kTurn < rows_end) return;
    const int rows = min(rows_end - first, kRound);
    if (g.boxes) {
      ptx::fence_async_shared();
      ptx::named_barrier_sync(barrier, 128);
      const int c0 = agreed(column), c1 = agreed(first), c2 = agreed(batch), boxes = agreed((rows + 7) / 8),
                from = agreed(static_cast<int>(ptx::shared_address(staging)) + buffer);
      if (ptx::elect_one()) {
#pragma unroll 1
        for (int box = quarter; box < boxes; box += 4)
          ptx::tma_store(&g.out, __cvta_shared_to_generic(static_cast<unsigned>(from + box * 8 * kRowBytes)), c0, c1 + 8 * box,
                         c2);
        ptx::tma_store_commit();
      }
    } else {
      ptx::named_barrier_sync(barrier, 128);
      Out* const out = static_cast<Out*>(p.out) + (static_cast<std::int64_t>(batch) * p.n + first) * p.m + column;
      const int wide = min(64, columns - column);
#pragma unroll 1
      for (int r = quarter; r < rows; r += 4) {
#pragma unroll 1
        for (int c = lane; c < wide; c += 32)
          out[r * p.m + c] = *reinterpret_cast<const Out*>(staging + buffer + r * kRowBytes + ((c / 8) ^ (r % 8)) * 16 +
                                                           c % 8 * static_cast<int>(sizeof(Out)));
      }
    }
  };
  if (p.activation != Activation::none) {
#pragma unroll 1
    for (int turn = 0; turn < kTurns && row + turn * kTurn < rows_end; ++turn) {
      float x[kTurn / 2];
#pragma unroll
      for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index
        if (known != turn) continue;
        __syncwarp();  // so that this is a branch
#pragma unroll
        for (int i = 0; i < kTurn / 2; ++i) x[i] = sums[kTurn / 2 * known + i];
      }
      store_turn(x, turn, std::true_type{});
    }
    return;
  }
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    if (row + turn * kTurn >= rows_end) break;
    float x[kTurn / 2];
#pragma unroll
    for (int i = 0; i < kTurn / 2; ++i) x[i] = sums[kTurn / 2 * turn + i];
    store_turn(x, turn, std::false_type{});
  }
}

/// A gated tile: activation(gate's sums + bias) * (up's sums + bias), 16 columns a turn; then as `boxes` where out allows it,
/// else straight from the registers, a few bytes at a time: that is for few rows and odd n. For half types the turns are
/// unrolled, as selecting registers at run time takes four times the instructions; fp32's long activations would leave the
/// instruction cache.
template <class Out, class Config>
__device__ __forceinline__ void store_gated(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g, int row,
                                            int column, int batch, int lane, unsigned char* staging) {
  constexpr int kColumns = Config::kValue.columns(), kTurn = 16, kTurns = kColumns / kTurn, kHalf = kColumns / 2;
  constexpr int kBox = 128 / static_cast<int>(sizeof(Out)) / kTurn;  // turns
  constexpr bool kScaled = Config::kValue.scaled;
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), n = static_cast<int>(p.n);
  if (row >= m) return;
  const int quad = lane % 4, first = lane / 4;
  const Out* const bias_gate = static_cast<const Out*>(g.bias_gate.data);
  const Out* const bias_up = static_cast<const Out*>(g.bias_up.data);
  Out* const out = static_cast<Out*>(p.out) + static_cast<std::int64_t>(batch) * m * p.n;
  int exponents[2] = {};
  if constexpr (kScaled) {
    const LineStats* const lines_a = g.lines_a + static_cast<std::int64_t>(batch) * g.batch_step_a * m;
#pragma unroll
    for (int h = 0; h < 2; ++h) exponents[h] = -split_exponent(lines_a[min(row + first + 8 * h, m - 1)].max_bits);
  }
  const BoxStore<Out, kTurn> boxes(staging, lane);
#pragma unroll(kScaled ? 1 : kTurns)
  for (int turn = 0; turn < kTurns; ++turn) {
    const int at = column + turn * kTurn;
    if (at >= n) break;
    float x[8], y[8];  // of column 8 (i / 4) + 2 quad + i % 2 and row first + 8 (i % 4 / 2)
#pragma unroll
    for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index
      if (known != turn) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = sums[8 * known + i], y[i] = sums[kHalf + 8 * known + i];
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int here = min(at + 8 * (j / 2) + 2 * quad + j % 2, n - 1);
      int exponent_gate = 0, exponent_up = 0;
      if constexpr (kScaled) {
        exponent_gate = -split_exponent(g.lines_b[here].max_bits);
        exponent_up = -split_exponent(g.lines_up[here].max_bits);
      }
      const float add_gate = bias_gate ? convert<float>(bias_gate[here * g.bias_gate.col_stride]) : 0.f;
      const float add_up = bias_up ? convert<float>(bias_up[here * g.bias_up.col_stride]) : 0.f;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int i = j / 2 * 4 + 2 * h + j % 2;
        if constexpr (kScaled) {
          x[i] = unscale(x[i], exponents[h] + exponent_gate);
          y[i] = unscale(y[i], exponents[h] + exponent_up);
        }
        x[i] = plus(plus(x[i], 0.f), add_gate);  // + 0: see epilogue.cuh
        y[i] = plus(plus(y[i], 0.f), add_up);
      }
    }
    activate_all<Out>(x, g.activation);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = fmaf(x[i], y[i], 0.f);
    if (kColumns * sizeof(Out) >= 128 && g.boxes) {
      boxes.put(x, turn, at + kTurn >= n, g, column + turn / kBox * kBox * kTurn, row, batch, n, std::false_type{});
    } else {
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const int r = row + first + 8 * (pair % 2), c = at + 8 * (pair / 2) + 2 * quad;
        if (r >= m || c >= n) continue;
        Out* const target = out + static_cast<std::int64_t>(r) * p.n + c;
        const Vector<Out, 2> results{{convert<Out>(x[2 * pair]), convert<Out>(x[2 * pair + 1])}};
        if (n % 2 == 0) {
          store_vector(target, results);
        } else {
          target[0] = results[0];
          if (c + 1 < n) target[1] = results[1];
        }
      }
    }
  }
}

/// A cluster's warps meet, each as a whole, at different places; nothing that they wrote is made visible.
__device__ __forceinline__ void sync_cluster() {
  __syncwarp();
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

/// Splits of K. Every consumer thread of every CTA of the cluster calls it with its sums, nothing being under way in this CTA's
/// slots any more; the producer's warps match its cluster barrier. Sums go to their owner by stores that count on its `arrived`,
/// as a cluster barrier's release waits for all memory. `parity`: of the CTA's merges. Arrives at `merged` when the slots may be
/// loaded again.
template <class Out, class Config>
__device__ __forceinline__ void merge_tile(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g, int row,
                                           int column, int batch, int split, int thread, unsigned char* slots,
                                           ptx::Barrier* arrived, unsigned parity, ptx::Barrier* merged) {
  constexpr int kWarps = 4 * Config::kValue.consumers(), kStep = 32 * kWarps;
  float4* const parts = reinterpret_cast<float4*>(slots);  // [split][own piece][warp][lane]
  const int lane = thread % 32, warp = thread / 32;
  const int warps = min(kWarps, (static_cast<int>(g.problem.m) - row + 15) / 16);  // that have rows
  const int pieces = (g.tile_columns + 7) / 8, each = (pieces + g.cluster - 1) / g.cluster, first = split * each;
  const int own = max(0, min(each, pieces - first));
  if (thread == 0) ptx::barrier_arrive_expect(arrived, static_cast<unsigned>(g.cluster * own * warps) * 512);
  sync_cluster();  // every CTA's slots are free
  if (warp < warps) {
    int owner = 0, at = 0;
#pragma unroll
    for (int j = 0; j < Config::kValue.tile_n / 8; ++j) {
      if (j >= pieces) break;
      const float4 four{sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
      ptx::store_async(parts + (split * each + at) * kStep + thread, four, arrived, static_cast<unsigned>(owner));
      if (++at == each) at = 0, ++owner;
    }
  }
  const auto epilogue = tile_epilogue<Out>(g.problem, batch);
  ptx::barrier_wait(arrived, parity);
  const LaneColumns columns(g.problem, lane % 4, std::true_type{});
#pragma unroll 1
  for (int unit = warp; unit < own * warps; unit += kWarps) {
    const int at = unit / warps, of = unit - at * warps, r = row + 16 * of + lane / 4;  // this lane's rows are r, r + 8
    const float4* const in = parts + at * kStep + 32 * of + lane;
    float4 sum = *in;
#pragma unroll 1
    for (int s = 1; s < g.cluster; ++s) {
      const float4 x = in[s * each * kStep];
      sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
    }
    store_rows<Out, Config::kValue.scaled, 2, 8>(
        g, epilogue, r, min(2, (static_cast<int>(g.problem.m) - r + 7) / 8), column + 8 * (first + at), columns,
        column + g.tile_columns, batch,
        [&](int h) { return h == 0 ? Vector<float, 2>{{sum.x, sum.y}} : Vector<float, 2>{{sum.z, sum.w}}; });
  }
  ptx::fence_async_shared();  // the next loads overwrite what was read and written here
  __syncwarp();
  if (lane == 0) ptx::barrier_arrive(merged);
}

/// Adds kParts parts from `in` on, kPartStep apart (kTail: as far as there are so many, `left`), to a lane's four sums; all are
/// asked for together.
template <int kParts, int kPartStep, bool kTail>
__device__ __forceinline__ void add_parts(float4& sum, const float4* in, int left, bool from_zero) {
  float4 part[kParts];
#pragma unroll
  for (int s = 0; s < kParts; ++s) part[s] = __ldcg(in + (kTail ? min(s, left - 1) : s) * kPartStep);
#pragma unroll
  for (int s = 0; s < kParts; ++s) {
    if (kTail && s >= left) break;
    if (s == 0 && from_zero)
      sum = part[s];
    else
      sum = {sum.x + part[s].x, sum.y + part[s].y, sum.z + part[s].z, sum.w + part[s].w};
  }
}

/// Parts of K that are items of their own. Every consumer thread calls it with its sums of part `split` of tile `index`. `stays`:
/// this CTA has no other item after it.
template <class Out, class Config>
__device__ __forceinline__ void meet_tile(const float (&sums)[Config::kValue.tile_n / 2], const WgmmaArguments& g, int row,
                                          int column, int batch, int index, int split, bool stays, int thread,
                                          MeetingShare* share) {
  constexpr int kWarps = 4 * Config::kValue.consumers(), kStep = 32 * kWarps, kPieces = Config::kValue.tile_n / 8;
  const int rows = min(16 * kWarps, static_cast<int>(g.problem.m) - row), lane = thread % 32, warp = thread / 32;
  // As accumulators lie, whole lines a warp: [part][8 columns][warp][lane]
  float4* const parts = reinterpret_cast<float4*>(g.partials) + static_cast<std::int64_t>(index) * g.spread * (kPieces * kStep);
  if (16 * warp < rows) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j)
      parts[(split * kPieces + j) * kStep + thread] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
  }
  ptx::named_barrier_sync(kMeetBarrier, 32 * kWarps);
  if (thread == 0) *share = meet(g.meetings[index], static_cast<unsigned>(g.spread), stays);
  ptx::named_barrier_sync(kMeetBarrier, 32 * kWarps);
  const int of = static_cast<int>(share->of), my_rank = static_cast<int>(share->rank);
  if (of > 0) {
    // Units of two rows, eight apart, by 64 columns, two columns a lane.
    constexpr int kRounds = (kPieces + 7) / 8;
    const int units = kRounds * 8 * ((rows + 15) / 16);
    const LaneColumns columns(g.problem, lane);
    const auto epilogue = tile_epilogue<Out>(g.problem, batch);
#pragma unroll 1
    for (int unit = warp * of + my_rank; unit < units; unit += kWarps * of) {
      const int round = unit % kRounds, pair = unit / kRounds, r0 = pair / 8 * 16 + pair % 8;
      if (column + 64 * round >= g.problem.n || r0 >= rows) continue;
      const float4* const in = parts + min(8 * round + lane / 4, kPieces - 1) * kStep + pair / 8 * 32 + pair % 8 * 4 + lane % 4;
      float4 four{};
      constexpr int kPartStep = kPieces * kStep, kDeep = kPieces <= 8 ? 16 : 8;  // wider: no registers
      int done = 0;
#pragma unroll 1
      for (; done + kDeep <= g.spread; done += kDeep)
        add_parts<kDeep, kPartStep, false>(four, in + done * kPartStep, kDeep, done == 0);
#pragma unroll 1
      for (; done < g.spread; done += 4) add_parts<4, kPartStep, true>(four, in + done * kPartStep, g.spread - done, done == 0);
      Vector<float, 2> sum[2]{{{four.x, four.y}}, {{four.z, four.w}}};
      if (!columns.paired) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float x[2];
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const float even = __shfl_sync(0xffffffffu, sum[r][0], 16 * c + lane / 2),
                        odd = __shfl_sync(0xffffffffu, sum[r][1], 16 * c + lane / 2);
            x[c] = lane % 2 ? odd : even;
          }
          sum[r] = {{x[0], x[1]}};
        }
      }
      store_rows<Out, false, 2, 8>(g, epilogue, row + r0, r0 + 8 < rows ? 2 : 1, column + 64 * round, columns,
                                   column + g.tile_columns, batch, [&](int r) { return r == 0 ? sum[0] : sum[1]; });
      __syncwarp();
    }
  }
  if (thread == 0) depart(g.meetings[index], static_cast<unsigned>(g.spread));
}

}  // namespace xgemm::matmul::wgmma_detail
