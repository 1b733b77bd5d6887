#include "device/launch.h"
#include "matmul/gemv/sweep.cuh"
#include "matmul/launch.h"

namespace xgemm::matmul {
namespace {

template <int kX, bool kVector, int kBuffers>
void launch(const Problem& p, const GemvPlan& plan, bool stream_b, cudaStream_t stream) {
  constexpr auto kSweep = sweep_kernel<kX, kVector, kBuffers>;
  constexpr int kBytes = sweep_bytes(kX);
  allow_shared<kSweep, kBytes>();
  const auto splits = static_cast<unsigned>(plan.splits);
  enqueue(kSweep,
          {.blocks = static_cast<unsigned>(plan.tiles) * splits,
           .threads = 32u * (plan.many ? kSweepStrips / 2 : kSweepStrips),
           .shared_bytes = p.k <= kSweepExact || splits > 1 ? static_cast<std::size_t>(kBytes) : 0,
           .cluster = splits,
           .early = true},
          stream, SweepArguments{p, stream_b, static_cast<int>(splits), static_cast<unsigned>(plan.tiles / p.batches)});
}

template <bool kVector>
void launch(const Problem& p, const GemvPlan& plan, bool stream_b, cudaStream_t stream) {
  if ((stream_b ? p.m : p.n) > 1)
    launch<4, kVector, 2>(p, plan, stream_b, stream);
  else  // of many blocks several fit an SM; a block that is alone needs more bytes in flight
    plan.many ? launch<1, kVector, 1>(p, plan, stream_b, stream) : launch<1, kVector, 2>(p, plan, stream_b, stream);
}

}  // namespace

void launch_sweep(const Problem& p, const GemvPlan& plan, cudaStream_t stream) {
  const bool stream_b = sweep_streams_b(p);
  const bool vector =
      stream_b ? !b_along_k(p) && has_vectors(p, lines_of_b(p), 4) : !a_along_k(p) && has_vectors(p, lines_of_a(p), 4);
  vector ? launch<true>(p, plan, stream_b, stream) : launch<false>(p, plan, stream_b, stream);
}

}  // namespace xgemm::matmul
