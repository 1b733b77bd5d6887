#include "attention/backward/kernel.cuh"
#include "device/launch.h"

namespace xgemm::attention {
namespace {

template <class T>
void launch_tiles(const GradientArguments& g, cudaStream_t stream) {
  const auto grid = [&](int rows, int of_keys) {
    const int blocks = blocks_of_rows(g.sq, rows) + of_keys * blocks_of_rows(g.sk, rows);
    return Grid{.blocks = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(g.heads), static_cast<unsigned>(g.batch)),
                .threads = T::kThreads,
                .early = true};
  };
  enqueue(split_for_gradients<T>, grid(T::kRows, 1), stream, g);
  enqueue_with_shared<attention_gradients<T>, sizeof(GradientMemory<T>)>(grid(T::kOwn, T::kTogether ? 1 : 2), stream, g);
}

using Narrow = GradientTile<64>;
using Wide = GradientTile<kWidestGradientHead>;

}  // namespace

std::size_t gradient_bytes(const GradientArguments& g) {
  const auto bytes = [&]<class T>(T) {
    return sizeof(GradientRows<T>) * static_cast<std::size_t>(blocks_of_rows(g.sq, T::kRows) + blocks_of_rows(g.sk, T::kRows));
  };
  return static_cast<std::size_t>(g.batch) * static_cast<std::size_t>(g.heads) * (g.d <= 64 ? bytes(Narrow()) : bytes(Wide()));
}

void launch_gradients(const GradientArguments& g, cudaStream_t stream) {
  (g.d <= Narrow::kColumns ? launch_tiles<Narrow> : launch_tiles<Wide>)(g, stream);
}

}  // namespace xgemm::attention
