#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/gemv/dot.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

/// Are quads of k aligned accesses in every line, and wholly in bounds?
bool in_quads(const Problem& p, const OperandLines& x) { return x.k_stride == 1 && has_vectors(p, x, 4); }

template <int kX, int kLines, dot::Loads kLoads, dot::Exact kExact, bool kStaged>
void launch(const Problem& p, cudaStream_t stream) {
  constexpr auto kDot = dot_kernel<kX, kLines, kLoads, kExact, kStaged>;
  const bool stream_b = dot_streams_b(p);
  const std::int64_t lines = stream_b ? p.n : p.m;
  const int warps = dot_warps(lines, p.k), lanes = kExact == dot::Exact::all ? dot_lanes(p.k) : 32;
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
  using enum dot::Exact;
  // The branch for a first quad costs registers and time with several lines of x; elsewhere one instance does for any K.
  constexpr bool kBranch = kX == 1 || kLoads == dot::Loads::elements || (kLoads == dot::Loads::vectors && kStaged);
  constexpr dot::Exact kLong = kBranch ? first : none;
  p.k <= kDotShort    ? launch<kX, kLines, kLoads, all, kStaged>(p, stream)
  : p.k < dot::kExact ? launch<kX, kLines, kLoads, first, kStaged>(p, stream)
                      : launch<kX, kLines, kLoads, kLong, kStaged>(p, stream);
}

/// kTwo, kFour: lines of w per group for two lines of x, and up to four.
template <dot::Loads kLoads, bool kStaged, int kTwo, int kFour>
void launch_for(std::int64_t x_lines, const Problem& p, cudaStream_t stream) {
  x_lines == 1   ? launch<1, 1, kLoads, kStaged>(p, stream)
  : x_lines == 2 ? launch<2, kTwo, kLoads, kStaged>(p, stream)
                 : launch<4, kFour, kLoads, kStaged>(p, stream);
}

}  // namespace

void launch_dot(const Problem& p, cudaStream_t stream) {
  const bool stream_b = dot_streams_b(p);
  const OperandLines w = stream_b ? lines_of_b(p) : lines_of_a(p), x = stream_b ? lines_of_a(p) : lines_of_b(p);
  const bool apart = p.k % 4 != 0;  // depends on K alone, so that no bit depends on strides or addresses
  using enum dot::Loads;
  if (apart && (x.k_stride == 1 || !dot_stages(p.k)))
    launch_for<strided, false, 2, 4>(x.count, p, stream);
  else if (apart)
    launch_for<strided, true, 2, 4>(x.count, p, stream);
  else if (in_quads(p, w) && in_quads(p, x))
    launch_for<vectors, false, 2, 2>(x.count, p, stream);
  else if (in_quads(p, w) && dot_stages(p.k))
    launch_for<vectors, true, 2, 2>(x.count, p, stream);
  else
    launch_for<elements, false, 1, 1>(x.count, p, stream);
}

}  // namespace xgemm::matmul
