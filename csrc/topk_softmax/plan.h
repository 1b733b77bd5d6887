// topk_softmax: problem -> kernel, lanes per row. Pure host code, tested without a GPU.
#pragma once
#include "reduce/plan.h"

namespace xgemm::topk_softmax {

inline constexpr std::int64_t kMaxK = 64;

/// rounds: a few lanes a row, a maximum a round. select: a warp or a CTA a row; the few elements above a threshold are sorted.
enum class Kernel : std::uint8_t { rounds, select };

/// The arguments of both kernels. Which thread holds which element, and so the order of a sum, follows from length, k and dtype.
struct Plan {
  DType in = DType::f32, out = DType::f32;
  Kernel kernel = Kernel::rounds;
  bool renormalize = true;
  bool vector = false;   ///< the row has stride 1: 16-byte loads, at any alignment
  bool aligned = false;  ///< every row starts at a multiple of 16 bytes from the base
  int k = 0;
  int rank = 0;     ///< select: ceil(k / warps)
  int values = 0;   ///< rounds: registers per lane, 8 or 16
  int lanes = 0;    ///< threads per row
  int threads = 0;  ///< per block
  std::int64_t rows = 1, length = 1, stride = 1;
  std::int64_t out_stride = 1;  ///< of one row's results
  std::int64_t blocks = 0;      ///< each takes every blocks-th group of threads / lanes rows
  std::size_t shared_bytes = 0;
  IndexMap kept{};  ///< row -> offset in the input and in both results
};

/// 1 <= k <= min(length, kMaxK), length < 2^31, no dim empty. `op` is for messages.
Plan make_plan(const char* op, const reduce::Source& source, std::int64_t dim, int k, bool renormalize, DType out);

/// Bytes of a (key, index) pair in shared memory.
constexpr std::size_t entry_bytes(DType in) { return in == DType::f64 ? 16 : 8; }
/// select: 16-byte vectors that a lane loads at once; fewer in fp64, whose exponentials need the registers.
constexpr int tile_steps(DType in) { return in == DType::f64 ? 2 : 4; }
/// select: entries of a warp's queue: fewer than 32 waiting ones plus one per lane; at the end the warp's list of up to 64.
inline constexpr int kQueueEntries = 64;

}  // namespace xgemm::topk_softmax
