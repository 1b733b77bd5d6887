// Host dispatch of one operator over the element types. Eight: signed, unsigned and bool bytes share a kernel, minima share the
// maxima's, means the sums'.
#pragma once
#include "device/launch.h"
#include "reduce/kernels/columns.cuh"
#include "reduce/kernels/elements.cuh"
#include "reduce/kernels/operators/index.cuh"
#include "reduce/kernels/operators/logsumexp.cuh"
#include "reduce/kernels/rows.cuh"
#include "reduce/kernels/runs.cuh"
#include "reduce/kernels/short_columns.cuh"
#include "reduce/launch.h"

namespace xgemm::reduce {

/// The instantiation of reduce_runs, if any, that reads these rows. Their results must be contiguous.
template <class T>
Runs runs_of(const RowPlan& plan, const void* in) {
  const std::int64_t width = Pack<T>::kCount, pitch = plan.kept.stride[0];
  const bool one = plan.kept.dims == 0 || (plan.kept.dims == 1 && plan.kept.out[0] == 1);
  if (plan.splits_per_run > 0) return Runs::shifted_splits;
  if (!plan.vector || plan.reduced.dims != 1 || !one) return Runs::none;
  if (plan.length % width == 0 && pitch % width == 0 && reinterpret_cast<std::uintptr_t>(in) % 16 == 0)
    return plan.lanes == kWarpSize ? Runs::warps : Runs::few_lanes;
  return plan.splits == 1 ? Runs::shifted_rows : Runs::shifted_splits;
}

inline Grid grid_of(const Reduction& plan) {
  return {.blocks = dim3(static_cast<unsigned>(plan.ctas)), .threads = dim3(static_cast<unsigned>(plan.threads)), .early = true};
}

template <class Op>
void launch_kernel(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using T = typename Op::T;
  const auto go = [&]<auto kKernel>() {
    if (plan.cluster > 8)  // not every GPU supports such clusters
      once_a_device<kKernel>(
          [](int) { return cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess; });
    Grid grid = grid_of(plan);
    grid.shared_bytes = row_shared_bytes<Op>(plan);
    grid.cluster = static_cast<unsigned>(plan.cluster);
    enqueue(kKernel, grid, stream, plan, static_cast<const T*>(in), out, static_cast<unsigned*>(workspace.counters),
            static_cast<typename Op::State*>(workspace.partials));
  };
  if constexpr (std::is_same_v<T, float> || kIsHalf<T>) {
    switch (runs_of<T>(plan, in)) {
      case Runs::warps: return go.template operator()<reduce_runs<Op, Runs::warps>>();
      case Runs::few_lanes: return go.template operator()<reduce_runs<Op, Runs::few_lanes>>();
      case Runs::shifted_rows:  // operators that need even more registers take reduce_rows
        if constexpr (!Op::kTotal) return go.template operator()<reduce_runs<Op, Runs::shifted_rows>>();
        break;
      case Runs::shifted_splits:  // operators that need more registers are as fast in reduce_rows
        if constexpr (!Op::kTotal && !Op::kFindsLater) return go.template operator()<reduce_runs<Op, Runs::shifted_splits>>();
        break;
      case Runs::none: break;
    }
  }
  go.template operator()<reduce_rows<Op>>();
}

template <class Op>
void launch_kernel(const ElementPlan& plan, const void* in, void* out, const Workspace&, cudaStream_t stream) {
  if constexpr (std::is_same_v<typename Op::Extra, NoExtra>) {
    Grid grid = grid_of(plan);
    grid.threads = dim3(static_cast<unsigned>(plan.lanes), static_cast<unsigned>(plan.rows));
    enqueue(reduce_elements<Op>, grid, stream, plan, static_cast<const typename Op::T*>(in), out);
  } else {
    throw UnplannedDType();
  }
}

template <class Op>
struct ForColumns {
  using type = Op;
};
template <class T>
  requires(sizeof(T) <= 2)
struct ForColumns<MaximumIndex<T>> {
  using type = MaximumKey<T>;
};

template <class RowOp>
void launch_kernel(const ShortColumnPlan& plan, const void* in, void* out, const Workspace&, cudaStream_t stream) {
  using Op = typename ForColumns<RowOp>::type;
  using T = typename Op::T;
  if constexpr (std::is_same_v<typename RowOp::Extra, NoExtra> && (std::is_same_v<T, float> || kIsHalf<T>)) {
    Grid grid = grid_of(plan);
    grid.shared_bytes = static_cast<std::size_t>(short_column_bytes<Op>(plan));
    const auto go = [&](auto* kernel) { enqueue(kernel, grid, stream, plan, static_cast<const T*>(in), out); };
    if (plan.width > 1) return go(reduce_short_columns<Op, Pack<T>::kCount>);
    go(reduce_short_columns<Op, 1>);
  } else {
    throw UnplannedDType();
  }
}

template <class RowOp>
void launch_kernel(const ColumnPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using Op = typename ForColumns<RowOp>::type;
  const auto go = [&](auto* kernel) {
    Grid grid = grid_of(plan);
    grid.early = plan.early;
    enqueue(kernel, grid, stream, plan, static_cast<const typename Op::T*>(in), out, static_cast<unsigned*>(workspace.counters),
            static_cast<typename Op::State*>(workspace.partials));
  };
  if constexpr (std::is_floating_point_v<Value<typename Op::T>>)
    if (plan.blocks_loaded) return go(reduce_columns<Op, true>);
  go(reduce_columns<Op, false>);
}

/// `plan` does not hold a CopyPlan (launch_copy).
template <class Op>
void launch_typed(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  std::visit(
      [&]<class Kernel>(const Kernel& kernel) {
        if constexpr (!std::is_same_v<Kernel, CopyPlan>) launch_kernel<Op>(kernel, in, out, workspace, stream);
      },
      plan.kernel);
}

template <template <class> class Op>
void launch_floating(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  switch (reduction_of(plan).in) {
    case DType::f32: return launch_typed<Op<float>>(plan, in, out, workspace, stream);
    case DType::f16: return launch_typed<Op<half>>(plan, in, out, workspace, stream);
    case DType::bf16: return launch_typed<Op<bf16>>(plan, in, out, workspace, stream);
    case DType::f64: return launch_typed<Op<double>>(plan, in, out, workspace, stream);
    default: throw UnplannedDType();
  }
}

template <template <class> class Op>
void launch_any(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  switch (reduction_of(plan).in) {
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
