// Stores a tile of C through shared memory in boxes of 16 rows by 128 bytes, which TMA stores while the warp goes on: alpha and
// bias, and for half precision any epilogue whose C and residual can be read in pairs of columns. 32 columns (a turn) are
// converted at a time.
#pragma once
#include <type_traits>

#include "device/ptx/stmatrix.cuh"
#include "device/warp.cuh"
#include "matmul/epilogue/store_ragged.cuh"

namespace xgemm::matmul::wgmma_detail {

/// Stores a warp's 16 rows of results by TMA, kTurn columns at a time, through two buffers of 16 rows of kBytes, 128 or 64.
/// Pieces of 16 bytes of row r are swizzled by r % 8 or r / 2 % 4, as in TMA's swizzle of that width.
template <class Out, int kTurn, int kBytes = 128>
class BoxStore {
  static constexpr int kTurns = kBytes / static_cast<int>(sizeof(Out)) / kTurn;  // of a box
  static constexpr bool kMatrices = sizeof(Out) == 2;
  unsigned char* staging;
  std::uint32_t place;  // this lane's address for a buffer's first columns; for others by exclusive-or
  int lane;

 public:
  __device__ __forceinline__ BoxStore(unsigned char* staging, int lane) : staging(staging), lane(lane) {
    const int r = kMatrices ? lane % 16 : lane / 4, piece = kMatrices ? lane / 16 : lane % 4 / 2;
    place = ptx::shared_address(staging) + static_cast<unsigned>(r * kBytes + (piece ^ (kBytes == 128 ? r % 8 : r / 2 % 4)) * 16 +
                                                                 (kMatrices ? 0 : lane % 2 * 8));
  }
  /// x[i]: column 8 (i / 4) + 2 (lane % 4) + i % 2 and row lane / 4 + 8 (i % 4 / 2), as in the accumulators. The box is stored
  /// with its last turn, or if `last` (no column follows); its first element is C's (column, row, batch).
  __device__ __forceinline__ void put(const float (&x)[kTurn / 2], int turn, bool last, const WgmmaArguments& g, int column,
                                      int row, int batch, int column_end, auto may_be_ragged) const {
    const int buffer = turn / kTurns % 2 * 2048;
    if (turn % kTurns == 0) {
      wait_for_buffer(turn == 0);
    }
#pragma unroll
    for (int j = 0; j < kTurn / 16; ++j) {
      const std::uint32_t target =
          (place + static_cast<unsigned>(buffer)) ^ static_cast<unsigned>((turn % kTurns * kTurn + 16 * j) * sizeof(Out));
      if constexpr (kMatrices) {
        std::uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = rounded_pair<Out>(x[8 * j + 2 * i], x[8 * j + 2 * i + 1]);
        ptx::store_matrices(target, pairs);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          ptx::store_pair((target ^ static_cast<unsigned>(i / 2 * 32)) + static_cast<unsigned>(i % 2 * 1024), x[8 * j + 2 * i],
                          x[8 * j + 2 * i + 1]);
      }
    }
    if (turn % kTurns == kTurns - 1 || last) {
      if constexpr (may_be_ragged && kBytes == 128) {
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
      const int c0 = warp_uniform(column), c1 = warp_uniform(row), c2 = warp_uniform(batch),
                from = warp_uniform(static_cast<int>(ptx::shared_address(staging)) + buffer);
      if (ptx::elect_one()) {
        ptx::tma_store(&g.out, __cvta_shared_to_generic(static_cast<unsigned>(from)), c0, c1, c2);
        ptx::tma_store_commit();
      }
    }
  }
};

/// Calls f(x, turn) for each turn of kTurn columns before `end`, where x are a lane's sums. Rolled: for long code, which would
/// overflow the instruction cache.
template <int kTurn, bool kRolled, int kCount, class F>
__device__ __forceinline__ void each_turn(const float (&sums)[kCount], int end, const F& f) {
  constexpr int kEach = kTurn / 2, kTurns = kCount / kEach;
  float x[kEach];
  if constexpr (kRolled) {
#pragma unroll 1
    for (int turn = 0; turn * kTurn < end; ++turn) {
#pragma unroll
      for (int known = 0; known < kTurns; ++known) {  // registers have no run-time index
        if (known != turn) continue;
        __syncwarp();  // so that this is a branch: predicated moves of all turns' registers take seven times as many
#pragma unroll
        for (int i = 0; i < kEach; ++i) x[i] = sums[known * kEach + i];
      }
      f(x, turn);
    }
  } else {
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      if (turn * kTurn >= end) break;
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = sums[turn * kEach + i];
      f(x, turn);
    }
  }
}

/// May boxes be stored with an activation? Not fp32's, which are long: a turn's would spill and overflow the instruction cache.
template <class Out>
inline constexpr bool kActivatesBoxes = sizeof(Out) == 2;

/// The TMA path of store_tile; `n`: end of the warp's columns.
template <class Out, WgmmaConfig kConfig>
__device__ __forceinline__ void store_tma(const float (&sums)[kConfig.tile_n / 2], const WgmmaArguments& g, int row, int column,
                                          int n, int batch, int lane, unsigned char* staging, const int* scales,
                                          int row_in_tile) {
  constexpr int kTileM = kConfig.tile_m, kTileN = kConfig.tile_n;
  const Problem& p = g.problem;
  const int m = static_cast<int>(p.m), quad = lane % 4, first = lane / 4;
  const int* const column_scales = scales + kTileM + 2 * quad;
  float row_factors[2];
  if constexpr (kConfig.scaled) {
#pragma unroll
    for (int h = 0; h < 2; ++h) row_factors[h] = __int_as_float(scales[row_in_tile + first + 8 * h]);
  }
  const float alpha = g.alpha;
  constexpr int kTurn = 32, kPairs = kTurn / 8;  // columns at a time: a lane's 16 results
  constexpr int kBoxBytes = kConfig.box_c();
  constexpr int kBox = kBoxBytes / static_cast<int>(sizeof(Out)) / kTurn;
  const Out* const bias = static_cast<const Out*>(p.bias.data);
  const float* const shared_bias = reinterpret_cast<const float*>(scales) + 2 * quad;
  const BoxStore<Out, kTurn, kBoxBytes> boxes(staging, lane);
  // C and residual at the elements of a turn's sums, loaded before they are needed.
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
  enum class Rest { none, ragged, activation, all };  // of the epilogue; ragged: none, for unaligned rows of fp32
  const auto store_turn = [&](float(&x)[4 * kPairs], int turn, auto rest) {
    constexpr Rest kRest = decltype(rest)::value;
    constexpr bool kWhole = kRest == Rest::all;
    const int at = column + turn * kTurn;
    Places c, residual;
    if constexpr (kWhole) c = fetch(p.c, at), residual = fetch(p.residual, at);
#pragma unroll
    for (int i = 0; i < 4 * kPairs; ++i) {
      if constexpr (kConfig.scaled)
        x[i] = x[i] * row_factors[i / 2 % 2] * __int_as_float(column_scales[turn * kTurn + i / 4 * 8 + i % 2]);
      x[i] = scaled(alpha, x[i]);
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
        if constexpr (kConfig.fills_bias()) {
          add = load_vector<2>(shared_bias + turn * kTurn + 8 * j);
        } else {
#pragma unroll
          for (int c = 0; c < 2; ++c) add[c] = convert<float>(bias[min(at + 8 * j + 2 * quad + c, n - 1) * p.bias.col_stride]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) x[4 * j + i] = plus(x[4 * j + i], add[i % 2]);
      }
    }
    if constexpr (kRest >= Rest::activation) activate_all<Out>(x, p.activation);
    if constexpr (kWhole) {
      if (p.residual.data) {
#pragma unroll
        for (int i = 0; i < 4 * kPairs; ++i) x[i] = plus(x[i], residual[i]);
      }
    }
    boxes.put(x, turn, at + kTurn >= n, g, column + turn / kBox * kBox * kTurn, row, batch, n,
              std::bool_constant < kRest == Rest::ragged || kRest == Rest::activation > {});
  };
  if constexpr (kActivatesBoxes<Out> && kConfig.fills_bias() && kTileN >= 64) {
    if (g.ragged && p.activation == Activation::none) {
      const auto ragged = [&](auto with_bias) {
        store_ragged_tile<Out, kTileN, decltype(with_bias)::value>(sums, g, row, column, n, batch, lane, staging,
                                                                   reinterpret_cast<const float*>(scales));
      };
      return bias ? ragged(std::true_type{}) : ragged(std::false_type{});
    }
  }
  const auto store_turns = [&](auto rest) {
    each_turn<kTurn, decltype(rest)::value != Rest::none>(sums, n - column,
                                                          [&](auto& x, int turn) { store_turn(x, turn, rest); });
  };
  if constexpr (kActivatesBoxes<Out>) {
    if (p.c.data || p.residual.data) return store_turns(std::integral_constant<Rest, Rest::all>{});
    if (p.activation != Activation::none || g.ragged) return store_turns(std::integral_constant<Rest, Rest::activation>{});
  } else {
    if (g.ragged) return store_turns(std::integral_constant<Rest, Rest::ragged>{});
  }
  store_turns(std::integral_constant<Rest, Rest::none>{});
}

}  // namespace xgemm::matmul::wgmma_detail
