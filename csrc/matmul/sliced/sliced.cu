#include "device/integer.h"
#include "device/launch.h"
#include "matmul/sliced/kernel.cuh"
#include "matmul/sliced/launch.h"

namespace xgemm::matmul {
namespace {

template <SlicedTile kSliced, bool kAlongKA, bool kAlongKB>
void launch(const Problem& p, const SlicedPlan& plan, cudaStream_t stream) {
  using Shape = sliced::Shape<kSliced, kAlongKA, kAlongKB>;
  constexpr auto kGemm = sliced_gemm<kSliced, kAlongKA, kAlongKB>;
  allow_shared<kGemm, Shape::kBytes>();
  const auto shares = static_cast<unsigned>(plan.splits);
  const SlicedArguments args{.problem = p,
                             .a_vectors = has_vectors(p, lines_of_a(p), 4),
                             .b_vectors = has_vectors(p, lines_of_b(p), 4),
                             .plain = has_plain_epilogue(p) && !p.bias.data,
                             .apart = plan.apart,
                             .shares = static_cast<int>(shares),
                             .columns = static_cast<unsigned>(ceil_div(p.n, Shape::kTile.columns)),
                             .tiles = static_cast<unsigned>(plan.tiles / p.batches),
                             .all_tiles = static_cast<unsigned>(plan.tiles)};
  enqueue(kGemm,
          {.blocks = plan.apart ? static_cast<unsigned>(ceil_div(plan.tiles, sliced::kWarps))
                                : static_cast<unsigned>(plan.tiles) * shares,
           .threads = sliced::kThreads,
           .shared_bytes = Shape::kBytes,
           .cluster = shares,
           .early = true},
          stream, args);
}

template <SlicedTile kSliced>
void launch_layout(const Problem& p, const SlicedPlan& plan, cudaStream_t stream) {
  if (a_along_k(p))
    b_along_k(p) ? launch<kSliced, true, true>(p, plan, stream) : launch<kSliced, true, false>(p, plan, stream);
  else
    b_along_k(p) ? launch<kSliced, false, true>(p, plan, stream) : launch<kSliced, false, false>(p, plan, stream);
}

}  // namespace

void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream) {
  switch (plan.tile) {
    case SlicedTile::t32x32: return launch_layout<SlicedTile::t32x32>(p, plan, stream);
    case SlicedTile::t32x64: return launch_layout<SlicedTile::t32x64>(p, plan, stream);
  }
}

}  // namespace xgemm::matmul
