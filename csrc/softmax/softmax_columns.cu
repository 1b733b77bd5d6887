#include "device/all_shared.h"
#include "softmax/kernels/columns.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
    const bool plain = plan.aligned && plan.columns % Pack<T>::kCount == 0 && addresses;
    const ColumnsShared<T> places(plan, plain);
    const auto go = [&]<auto kKernel>() {
      allow_all_shared<kKernel>();
      const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.blocks)),
                      .threads = dim3(static_cast<unsigned>(plan.threads)),
                      .shared_bytes = static_cast<std::size_t>(places.bytes),
                      .cluster = static_cast<unsigned>(plan.cluster),
                      .early = true};
      const T* const first = static_cast<const T*>(in);
      enqueue(kKernel, grid, stream, plan, places, first, first + plan.last + 1, static_cast<O*>(out));
    };
    if (plain) return go.template operator()<softmax_columns<T, O, true>>();
    go.template operator()<softmax_columns<T, O, false>>();
  });
}

}  // namespace xgemm::softmax
