#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/gemv/dot.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

/// Are quads of k aligned accesses in every line, and wholly in bounds?
bool in_quads(const Problem& p, const OperandLines& x) { return x.k_stride == 1 && has_vectors(p, x, 4); }

template <int kX, bool kQuads, bool kShort>
void launch(const Problem& p, bool x_quads, cudaStream_t stream) {
  using Kind = DotKind<kX, kQuads, kShort>;
  const bool stream_b = dot_streams_b(p);
  const std::int64_t lines = stream_b ? p.n : p.m;
  const int warps = kShort ? 1 : dot_warps(lines, p.k), lanes = kShort ? dot_lanes(p.k) : 32;
  const int block = std::max(kDotBlockWarps, warps), groups = block / warps * (32 / lanes);
  const auto tiles = static_cast<unsigned>(ceil_div(lines, std::int64_t{groups * Kind::kLines}));
  enqueue(dot_kernel<Kind>,
          {.blocks = static_cast<unsigned>(tiles * p.batches), .threads = static_cast<unsigned>(32 * block), .early = true},
          stream, DotArguments{p, stream_b, x_quads, lanes, warps, tiles});
}

template <int kX>
void launch_for(const Problem& p, bool quads, bool x_quads, cudaStream_t stream) {
  const bool short_k = p.k <= kDotShort;
  quads ? (short_k ? launch<kX, true, true>(p, x_quads, stream) : launch<kX, true, false>(p, x_quads, stream))
        : (short_k ? launch<kX, false, true>(p, x_quads, stream) : launch<kX, false, false>(p, x_quads, stream));
}

}  // namespace

void launch_dot(const Problem& p, cudaStream_t stream) {
  const OperandLines a = lines_of_a(p), b = lines_of_b(p), &w = dot_streams_b(p) ? b : a, &x = dot_streams_b(p) ? a : b;
  const bool quads = in_quads(p, w), x_quads = in_quads(p, x);
  x.count == 1   ? launch_for<1>(p, quads, x_quads, stream)
  : x.count == 2 ? launch_for<2>(p, quads, x_quads, stream)
                 : launch_for<4>(p, quads, x_quads, stream);
}

}  // namespace xgemm::matmul
