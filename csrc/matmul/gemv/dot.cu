#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/gemv/dot.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

/// Are quads of k aligned accesses in every line, and wholly in bounds?
bool in_quads(const Problem& p, const OperandLines& x) { return x.k_stride == 1 && has_vectors(p, x, 4); }

template <int kX, int kLines, dot::Loads kLoads, bool kShort, bool kStaged>
void launch(const Problem& p, cudaStream_t stream) {
  constexpr auto kDot = dot_kernel<kX, kLines, kLoads, kShort, kStaged>;
  const bool stream_b = dot_streams_b(p);
  const std::int64_t lines = stream_b ? p.n : p.m;
  const int warps = dot_warps(lines, p.k), lanes = kShort ? dot_lanes(p.k) : 32;
  const int pitch = kStaged ? static_cast<int>(dot_pitch(p.k)) : 0, staged = 4 * kX * pitch;
  // More lines for each copy of x.
  const int least = staged > 32 * 1024 ? kDotMaxWarps : staged > 4 * 1024 ? 2 * kDotBlockWarps : kDotBlockWarps;
  const int block = std::max(least, warps), groups = block / warps * (32 / lanes);
  const auto tiles = static_cast<unsigned>(ceil_div(lines, std::int64_t{groups * kLines}));
  if constexpr (kStaged) allow_shared<kDot, static_cast<int>(kDotMaxStaged)>();
  enqueue(kDot,
          {.blocks = static_cast<unsigned>(tiles * p.batches),
           .threads = static_cast<unsigned>(32 * block),
           .shared_bytes = static_cast<std::size_t>(staged),
           .early = true},
          stream, DotArguments{p, stream_b, lanes, warps, pitch, tiles});
}

template <int kX, int kLines, dot::Loads kLoads, bool kStaged>
void launch(const Problem& p, cudaStream_t stream) {
  p.k <= kDotShort ? launch<kX, kLines, kLoads, true, kStaged>(p, stream) : launch<kX, kLines, kLoads, false, kStaged>(p, stream);
}

}  // namespace

// Two lines of x have an instantiation only where w and x are aligned along k: else they take the one of four.
void launch_dot(const Problem& p, cudaStream_t stream) {
  const bool stream_b = dot_streams_b(p);
  const OperandLines w = stream_b ? lines_of_b(p) : lines_of_a(p), x = stream_b ? lines_of_a(p) : lines_of_b(p);
  using enum dot::Loads;
  if (in_quads(p, w) && in_quads(p, x))
    x.count == 1   ? launch<1, 1, vectors, false>(p, stream)
    : x.count == 2 ? launch<2, 2, vectors, false>(p, stream)
                   : launch<4, 2, vectors, false>(p, stream);
  else if (in_quads(p, w) && dot_stages(p.k))
    x.count == 1 ? launch<1, 1, vectors, true>(p, stream) : launch<4, 2, vectors, true>(p, stream);
  else if (x.k_stride == 1 || !dot_stages(p.k))
    x.count == 1 ? launch<1, 1, strided, false>(p, stream) : launch<4, 4, strided, false>(p, stream);
  else
    x.count == 1 ? launch<1, 1, strided, true>(p, stream) : launch<4, 4, strided, true>(p, stream);
}

}  // namespace xgemm::matmul
