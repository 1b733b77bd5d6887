#include <algorithm>

#include "device/integer.h"
#include "device/launch.h"
#include "matmul/gemv/sweep.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

template <int kX, bool kVector, int kBuffers, bool kExact>
void launch_groups(const Problem& p, const GemvPlan& plan, bool stream_b, cudaStream_t stream) {
  constexpr auto kSweep = sweep_kernel<kX, kVector, kBuffers, kExact>;
  constexpr int kMostBytes = kExact ? sweep_bytes(kX, kSweepStrips, kSweepMaxSplits) : 0;
  if constexpr (kMostBytes > 48 * 1024) allow_shared<kSweep, kMostBytes>();
  const auto splits = static_cast<unsigned>(plan.splits);
  const int strips = sweep_strips(p.k), warps = plan.many ? std::max(4, strips / 2) : strips;
  enqueue(kSweep,
          {.blocks = static_cast<unsigned>(plan.tiles) * splits,
           .threads = static_cast<unsigned>(32 * warps),
           .shared_bytes = kExact ? static_cast<std::size_t>(sweep_bytes(kX, strips, static_cast<int>(splits))) : 0,
           .cluster = splits,
           .early = true},
          stream, SweepArguments{p, stream_b, strips, static_cast<int>(splits), static_cast<unsigned>(plan.tiles / p.batches)});
}

template <int kX, bool kVector, int kBuffers>
void launch_groups(const Problem& p, const GemvPlan& plan, bool stream_b, cudaStream_t stream) {
  p.k <= kSweepExact ? launch_groups<kX, kVector, kBuffers, true>(p, plan, stream_b, stream)
                     : launch_groups<kX, kVector, kBuffers, false>(p, plan, stream_b, stream);
}

template <bool kVector>
void launch(const Problem& p, const GemvPlan& plan, bool stream_b, cudaStream_t stream) {
  const std::int64_t x_lines = stream_b ? p.m : p.n;
  if (x_lines == 1)  // of many blocks several fit an SM; a block that is alone needs more bytes in flight
    plan.many ? launch_groups<1, kVector, 1>(p, plan, stream_b, stream) : launch_groups<1, kVector, 2>(p, plan, stream_b, stream);
  else
    x_lines == 2 ? launch_groups<2, kVector, 2>(p, plan, stream_b, stream)
                 : launch_groups<4, kVector, 2>(p, plan, stream_b, stream);
}

}  // namespace

void launch_sweep(const Problem& p, const GemvPlan& plan, cudaStream_t stream) {
  const bool stream_b = p.m <= kGemvLines && p.b.col_stride == 1;
  const bool vector =
      stream_b ? !b_along_k(p) && has_vectors(p, lines_of_b(p), 4) : !a_along_k(p) && has_vectors(p, lines_of_a(p), 4);
  vector ? launch<true>(p, plan, stream_b, stream) : launch<false>(p, plan, stream_b, stream);
}

}  // namespace xgemm::matmul
