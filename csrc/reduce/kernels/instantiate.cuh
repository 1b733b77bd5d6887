// Host dispatch of one operator over the element types. Eight: signed, unsigned and bool bytes share a kernel, minima share the
// maxima's, means the sums'.
#pragma once
#include <stdexcept>

#include "device/launch.h"
#include "reduce/kernels/columns.cuh"
#include "reduce/kernels/rows.cuh"
#include "reduce/launch.h"

namespace xgemm::reduce {

/// Which of reduce_runs, if any, reads these rows: their results lie one after the other.
template <class T>
Runs runs_of(const Plan& plan, const void* in) {
  const std::int64_t width = Pack<T>::kCount, pitch = plan.kept.stride[0];
  const bool one = plan.kept.dims == 0 || (plan.kept.dims == 1 && plan.kept.out[0] == 1);
  if (!plan.vector || plan.reduced.dims != 1 || !one) return Runs::none;
  if (plan.length % width == 0 && pitch % width == 0 && reinterpret_cast<std::uintptr_t>(in) % 16 == 0)
    return plan.lanes == kWarpSize ? Runs::warps : Runs::parts;
  return plan.strips == 1 ? Runs::shifted_rows : Runs::shifted_strips;
}

template <class Op>
void launch_rows(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using T = typename Op::T;
  const auto go = [&](auto kernel) {
    kernel<<<static_cast<unsigned>(plan.blocks), static_cast<unsigned>(plan.threads), row_shared_bytes<Op>(plan), stream>>>(
        plan, static_cast<const T*>(in), out, static_cast<unsigned*>(workspace.counters),
        static_cast<typename Op::State*>(workspace.partials));
  };
  if constexpr (std::is_same_v<T, float> || kIsHalf<T>) {
    switch (runs_of<T>(plan, in)) {
      case Runs::warps: return go(reduce_runs<Op, Runs::warps>);
      case Runs::parts: return go(reduce_runs<Op, Runs::parts>);
      case Runs::shifted_rows: return go(reduce_runs<Op, Runs::shifted_rows>);
      case Runs::shifted_strips:  // what needs more registers is as fast in reduce_rows
        if constexpr (!Op::kTotal && !Op::kFindsLater) return go(reduce_runs<Op, Runs::shifted_strips>);
        break;
      case Runs::none: break;
    }
  }
  go(reduce_rows<Op>);
}

template <class Op>
void launch_typed(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using T = typename Op::T;
  if (plan.kernel == Kernel::rows) return launch_rows<Op>(plan, in, out, workspace, stream);
  const Grid grid{
      .blocks = dim3(static_cast<unsigned>(plan.blocks)), .threads = dim3(static_cast<unsigned>(plan.threads)), .early = true};
  enqueue(reduce_columns<Op>, grid, stream, plan, static_cast<const T*>(in), out, static_cast<unsigned*>(workspace.counters),
          static_cast<typename Op::State*>(workspace.partials));
}

template <template <class> class Op>
void launch_floating(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  switch (plan.in) {
    case DType::f32: return launch_typed<Op<float>>(plan, in, out, workspace, stream);
    case DType::f16: return launch_typed<Op<half>>(plan, in, out, workspace, stream);
    case DType::bf16: return launch_typed<Op<bf16>>(plan, in, out, workspace, stream);
    case DType::f64: return launch_typed<Op<double>>(plan, in, out, workspace, stream);
    default: throw std::logic_error("xgemm: reduction of an integer dtype where only floating ones are planned");
  }
}

template <template <class> class Op>
void launch_any(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  switch (plan.in) {
    case DType::i64: return launch_typed<Op<std::int64_t>>(plan, in, out, workspace, stream);
    case DType::i32: return launch_typed<Op<std::int32_t>>(plan, in, out, workspace, stream);
    case DType::i16: return launch_typed<Op<std::int16_t>>(plan, in, out, workspace, stream);
    case DType::i8:
    case DType::u8:
    case DType::boolean: return launch_typed<Op<Byte>>(plan, in, out, workspace, stream);
    default: return launch_floating<Op>(plan, in, out, workspace, stream);
  }
}

}  // namespace xgemm::reduce
