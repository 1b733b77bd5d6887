#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/gemv/dot.cuh"
#include "matmul/gemv/launch.h"

namespace xgemm::matmul {
namespace {

/// Are quads of k aligned accesses in every line, and wholly in bounds?
bool in_quads(const Problem& p, OperandLines x) {
  if (x.count == 1) x.stride = 0;
  return x.k_stride == 1 && has_vectors(p, x, 4);
}

template <int kX, int kLines, dot::Loads kLoads, bool kExact>
void launch(const Problem& p, cudaStream_t stream) {
  const bool stream_b = dot_streams_b(p);
  const std::int64_t lines = stream_b ? p.n : p.m;
  const int warps = dot_warps(lines, p.k), block = std::max(kDotBlockWarps, warps);
  const auto tiles = static_cast<unsigned>(ceil_div(lines, std::int64_t{block / warps * kLines}));
  enqueue(dot_kernel<kX, kLines, kLoads, kExact>,
          {.blocks = static_cast<unsigned>(tiles * p.batches), .threads = static_cast<unsigned>(32 * block), .early = true},
          stream, DotArguments{p, stream_b, warps, tiles});
}

template <int kX, int kLines, dot::Loads kLoads>
void launch(const Problem& p, cudaStream_t stream) {
  p.k < dot::kExact ? launch<kX, kLines, kLoads, true>(p, stream) : launch<kX, kLines, kLoads, false>(p, stream);
}

}  // namespace

void launch_dot(const Problem& p, cudaStream_t stream) {
  const bool stream_b = dot_streams_b(p);
  const std::int64_t lines = stream_b ? p.n : p.m, x_lines = stream_b ? p.m : p.n;
  const bool quads = in_quads(p, lines_of_a(p)) && in_quads(p, lines_of_b(p));
  const bool apart = p.k % 4 != 0;  // depends on K alone, so that no bit depends on strides or addresses
  using enum dot::Loads;
  if (apart)
    x_lines == 1   ? (lines < 16384 ? launch<1, 1, strided>(p, stream) : launch<1, 2, strided>(p, stream))
    : x_lines == 2 ? launch<2, 2, strided>(p, stream)
                   : launch<4, 4, strided>(p, stream);
  else if (!quads)
    x_lines == 1   ? launch<1, 1, elements>(p, stream)
    : x_lines == 2 ? launch<2, 1, elements>(p, stream)
                   : launch<4, 1, elements>(p, stream);
  else if (x_lines == 1)  // two lines per group halve the reads of x, but are too coarse for few lines
    lines < 16384 ? launch<1, 1, vectors>(p, stream) : launch<1, 2, vectors>(p, stream);
  else
    x_lines == 2 ? launch<2, 2, vectors>(p, stream) : launch<4, 2, vectors>(p, stream);
}

}  // namespace xgemm::matmul
