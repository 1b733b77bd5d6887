#include <bit>

#include "softmax/kernels/elements.cuh"
#include "softmax/kernels/instantiate.cuh"

namespace xgemm::softmax {

namespace {

/// Thread i's vector of softmax_ones.
template <class T>
__device__ __forceinline__ void write_ones(const T* __restrict__ in, T* __restrict__ out, std::int64_t count, std::int64_t i,
                                           bool log) {
  constexpr int kWidth = Pack<T>::kCount;
  const std::int64_t first = i * kWidth;
  const Value<T> one = log ? 0 : 1;
  const auto result = [&](T x) { return convert<T>(convert<Value<T>>(x) - convert<Value<T>>(x) + one); };
  if (first + kWidth <= count) {
    Pack<T> pack = as_pack<T>(load_aligned16(in + first));
#pragma unroll
    for (int e = 0; e < kWidth; ++e) pack.values[e] = result(pack.values[e]);
    *reinterpret_cast<uint4*>(out + first) = as_raw(pack);
    return;
  }
#pragma unroll 1
  for (std::int64_t k = first; k < count; ++k) out[k] = result(in[k]);
}

/// Rows of one element, at copy speed: 1 (with `log` 0), or NaN where the element is infinite or NaN. `in` and `out` are
/// contiguous and aligned to 16 bytes; a vector a thread.
__global__ void __launch_bounds__(kElementThreads)
    softmax_ones(const void* __restrict__ in, void* __restrict__ out, std::int64_t count, DType dtype, bool log) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kElementThreads + threadIdx.x;
  ptx::grid_release();
  in = ptx::grid_wait(in);
  const auto write = [&]<class T>(Type<T>) { write_ones(static_cast<const T*>(in), static_cast<T*>(out), count, i, log); };
  switch (dtype) {
    case DType::f32: return write(Type<float>{});
    case DType::f16: return write(Type<half>{});
    case DType::bf16: return write(Type<bf16>{});
    default: write(Type<double>{});
  }
}

}  // namespace

void launch_elements(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  dispatch(plan, [&]<class T, class O>(Type<T>, Type<O>) {
    if constexpr (std::is_same_v<T, O>) {
      const bool addresses = (reinterpret_cast<std::uintptr_t>(in) | reinterpret_cast<std::uintptr_t>(out)) % 16 == 0;
      if (plan.length == 1 && addresses && (plan.outer == 1 || plan.kept.stride[0] == 1)) {
        const std::int64_t threads = (plan.outer + Pack<T>::kCount - 1) / Pack<T>::kCount;
        const Grid grid{.blocks = dim3(static_cast<unsigned>((threads + kElementThreads - 1) / kElementThreads)),
                        .threads = dim3(kElementThreads),
                        .early = true};
        return enqueue(softmax_ones, grid, stream, in, out, plan.outer, plan.in, plan.log);
      }
    }
    const Elements elements{.count = plan.outer * plan.columns,
                            .stride = plan.kept.stride[0],
                            .length_stride = plan.length_stride,
                            .columns = static_cast<int>(plan.columns),
                            .length = static_cast<int>(plan.length),
                            .steps = plan.steps,
                            .by_columns = ShortDivider::of(plan.columns),
                            .log2_beside = std::countr_zero(static_cast<unsigned>(plan.beside)),
                            .log2_lanes = std::countr_zero(static_cast<unsigned>(plan.lanes)),
                            .log = plan.log};
    const auto go = [&](auto kernel) {
      launch_clusters<true>(kernel, plan, dim3(static_cast<unsigned>(plan.threads)), element_bytes<Value<T>>(plan), stream,
                            elements, static_cast<const T*>(in), static_cast<O*>(out));
    };
    if (plan.steps <= kElements) return go(softmax_elements<T, O, kElements>);
    go(softmax_elements<T, O, 2 * kElements>);
  });
}

}  // namespace xgemm::softmax
