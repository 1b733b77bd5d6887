// Host dispatch over the six pairs of input and output dtype: the four floating ones, and 16 bits in with fp32 out.
#pragma once
#include <utility>

#include "device/launch.h"
#include "device/numeric.cuh"
#include "softmax/launch.h"

namespace xgemm::softmax {

/// f(Type<T>, Type<O>).
template <class F>
void dispatch(const Plan& plan, F&& f) {
  dispatch_floating(plan.in, [&]<class T>(Type<T>) {
    if constexpr (sizeof(T) == 2)
      if (plan.out == DType::f32) return f(Type<T>{}, Type<float>{});
    f(Type<T>{}, Type<T>{});
  });
}

/// Launches `kernel` with clusters of plan.cluster blocks. kEarly: it calls grid_wait() before it touches memory.
template <bool kEarly = false, class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), const Plan& plan, dim3 block, std::size_t shared_bytes, cudaStream_t stream,
                     Arguments&&... arguments) {
  const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.blocks)),
                  .threads = block,
                  .shared_bytes = shared_bytes,
                  .cluster = static_cast<unsigned>(plan.cluster),
                  .early = kEarly};
  enqueue(kernel, grid, stream, std::forward<Arguments>(arguments)...);
}

}  // namespace xgemm::softmax
