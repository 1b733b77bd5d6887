#include "device/integer.h"
#include "device/launch.h"
#include "matmul/dispatch.h"
#include "matmul/launch.h"
#include "matmul/sliced/kernel.cuh"

namespace xgemm::matmul {
namespace {

template <SlicedTile kSliced, bool kAlongKA, bool kAlongKB>
void launch(const Problem& p, const SlicedPlan& plan, cudaStream_t stream) {
  using Shape = sliced::Shape<kSliced, kAlongKA, kAlongKB>;
  constexpr auto kGemm = sliced_gemm<kSliced, kAlongKA, kAlongKB>;
  allow_shared<kGemm, Shape::kBytes>();
  const auto splits = static_cast<unsigned>(plan.splits);
  const SlicedArguments args{.problem = p,
                             .a_vectors = has_vectors(p, lines_of_a(p), 4),
                             .b_vectors = has_vectors(p, lines_of_b(p), 4),
                             .plain = has_plain_epilogue(p) && !p.bias.data,
                             .apart = plan.apart,
                             .splits = static_cast<int>(splits),
                             .columns = static_cast<unsigned>(ceil_div(p.n, Shape::kTile.n)),
                             .tiles = static_cast<unsigned>(plan.tiles / p.batches),
                             .all_tiles = static_cast<unsigned>(plan.tiles)};
  enqueue(kGemm,
          {.blocks = plan.apart ? static_cast<unsigned>(ceil_div(plan.tiles, sliced::kWarps))
                                : static_cast<unsigned>(plan.tiles) * splits,
           .threads = sliced::kThreads,
           .shared_bytes = Shape::kBytes,
           .cluster = splits,
           .early = true},
          stream, args);
}

}  // namespace

void launch_sliced(const Problem& p, const SlicedPlan& plan, cudaStream_t stream) {
  dispatch_tile<kSlicedTiles.size()>(plan.tile, [&]<SlicedTile kTile>() {
    dispatch_layouts(a_along_k(p), b_along_k(p),
                     [&]<bool kAlongKA, bool kAlongKB>() { launch<kTile, kAlongKA, kAlongKB>(p, plan, stream); });
  });
}

}  // namespace xgemm::matmul
