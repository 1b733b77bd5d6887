#include "device/all_shared.h"
#include "softmax/kernels/columns.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

void launch_columns(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
    const bool plain = plan.aligned && plan.columns % Pack<T>::kCount == 0 && addresses;
    const ColumnsShared<T> places(plan, plain);
    const T* const first = static_cast<const T*>(in);
    allow_all_shared<softmax_columns<T, O>>();
    launch_clusters<true>(softmax_columns<T, O>, plan, dim3(static_cast<unsigned>(plan.threads)),
                          static_cast<std::size_t>(places.bytes), stream, plan, places, first, first + plan.last + 1,
                          static_cast<O*>(out));
  });
}

}  // namespace xgemm::softmax
