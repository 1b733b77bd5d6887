#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/kernels/dot.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

/// Are quads of k aligned accesses in every line, and wholly inside?
bool in_quads(const Problem& p, const Operand& x, std::int64_t k_stride, std::int64_t lines, std::int64_t line_stride) {
  return k_stride == 1 && p.k % 4 == 0 && is_aligned(x.data, 16) && (lines == 1 || line_stride % 4 == 0) &&
         std::all_of(x.batch_stride, x.batch_stride + p.batch_dims, [](std::int64_t s) { return s % 4 == 0; });
}

int knobs[6] = {8, 1, 2112, 2, 4, 1};  // ahead, lines, target, least quads, block warps, early

template <int kX, int kLines, int kAhead>
void launch(const Problem& p, bool stream_b, bool quads, cudaStream_t stream) {
  const std::int64_t lines = stream_b ? p.n : p.m;
  int warps = 1;
  while (warps < kDotMaxWarps && lines * warps < knobs[2] && p.k / (4 * 64 * warps) >= knobs[3]) warps *= 2;
  const int block = std::max(knobs[4], warps);
  const auto tiles = static_cast<unsigned>(ceil_div(lines, std::int64_t{block / warps * (quads ? kLines : 1)}));
  const Grid grid{.blocks = static_cast<unsigned>(tiles * p.batches),
                  .threads = static_cast<unsigned>(32 * block),
                  .early = knobs[5] != 0};
  enqueue(quads ? dot_kernel<kX, kLines, kAhead, true> : dot_kernel<kX, 1, 2, false>, grid, stream,
          DotArguments{p, stream_b, warps, tiles});
}

}  // namespace

void launch_dot(const Problem& p, cudaStream_t stream) {
  if (const char* e = std::getenv("XGEMM_DOT"))
    std::sscanf(e, "%d,%d,%d,%d,%d,%d", knobs, knobs + 1, knobs + 2, knobs + 3, knobs + 4, knobs + 5);
  const bool stream_b = dot_streams_b(p);
  const bool quads = in_quads(p, p.a, p.a.col_stride, p.m, p.a.row_stride) && in_quads(p, p.b, p.b.row_stride, p.n, p.b.col_stride);
  const int x = static_cast<int>(stream_b ? p.m : p.n), which = knobs[0] * 10 + knobs[1];
  const auto go = [&]<int kX>() {
    switch (which) {
      case 81: return launch<kX, 1, kX == 4 ? 4 : 8>(p, stream_b, quads, stream);
      case 42: return launch<kX, 2, 4>(p, stream_b, quads, stream);
      case 22: return launch<kX, 2, 2>(p, stream_b, quads, stream);
      default: return launch<kX, 1, 4>(p, stream_b, quads, stream);
    }
  };
  x == 1 ? go.operator()<1>() : x == 2 ? go.operator()<2>() : go.operator()<4>();
}

}  // namespace xgemm::matmul
