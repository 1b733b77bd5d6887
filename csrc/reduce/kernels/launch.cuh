// Host dispatch of one operator over the kernels. Minima share the maxima's kernels, means the sums'.
#pragma once
#include "device/launch.h"
#include "reduce/kernels/columns.cuh"
#include "reduce/kernels/elements.cuh"
#include "reduce/kernels/operators/index.cuh"
#include "reduce/kernels/packed.cuh"
#include "reduce/kernels/rows.cuh"
#include "reduce/kernels/runs.cuh"
#include "reduce/kernels/short_columns.cuh"
#include "reduce/launch.h"

namespace xgemm::reduce {

/// Results must be contiguous.
template <class T>
Runs runs_of(const RowPlan& plan, const void* in) {
  const std::int64_t width = Pack<T>::kCount, pitch = plan.kept.stride[0];
  const bool one = plan.kept.dims == 0 || (plan.kept.dims == 1 && plan.kept.out[0] == 1);
  if (plan.splits_per_run > 0) return Runs::shifted_splits;
  if (!plan.vector || plan.reduced.dims != 1 || !one) return Runs::none;
  if (plan.length % width == 0 && pitch % width == 0 && reinterpret_cast<std::uintptr_t>(in) % 16 == 0)
    return plan.lanes == kWarpSize ? Runs::aligned : Runs::few_lanes;
  return plan.splits == 1 ? Runs::shifted_rows : Runs::shifted_splits;
}

template <class Op, class Kernel>
void enqueue_rows(Kernel* kernel, const RowPlan& plan, const void* in, void* out, const Workspace& workspace,
                  cudaStream_t stream) {
  Grid grid = grid_of(plan);
  grid.shared_bytes = row_shared_bytes<Op>(plan);
  grid.cluster = static_cast<unsigned>(plan.cluster);
  enqueue(kernel, grid, stream, plan, static_cast<const typename Op::T*>(in), out, static_cast<unsigned*>(workspace.counters),
          static_cast<typename Op::State*>(workspace.partials));
}

template <class Op>
void launch_kernel(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using T = typename Op::T;
  const auto go = [&](auto* kernel) { enqueue_rows<Op>(kernel, plan, in, out, workspace, stream); };
  if constexpr (sizeof(T) < 8) {
    switch (runs_of<T>(plan, in)) {
      case Runs::none: break;
      case Runs::few_lanes:
        if constexpr (kHasFewLanes<Op>) return go(reduce_runs<Op, Runs::few_lanes>);
        [[fallthrough]];
      case Runs::aligned: return go(reduce_runs<Op, Runs::aligned>);
      case Runs::shifted_rows: return go(reduce_runs<Op, Runs::shifted_rows>);
      case Runs::shifted_splits:
        if constexpr (kHasShiftedSplits<Op>) return go(reduce_runs<Op, Runs::shifted_splits>);
        break;
    }
  }
  go(reduce_rows<Op>);
}

template <class RowOp>
void launch_kernel(const ElementPlan& plan, const void* in, void* out, const Workspace&, cudaStream_t stream) {
  if constexpr (std::is_same_v<typename RowOp::Extra, NoExtra>) {
    Grid grid = grid_of(plan);
    grid.threads = dim3(static_cast<unsigned>(plan.lanes), static_cast<unsigned>(plan.rows));
    enqueue(reduce_elements<typename OfValues<RowOp>::type>, grid, stream, plan, in, out);
  } else {
    throw UnplannedDType();
  }
}

template <class RowOp>
void launch_kernel(const PackedPlan& plan, const void* in, void* out, const Workspace&, cudaStream_t stream) {
  if constexpr (std::is_same_v<typename RowOp::Extra, NoExtra> && sizeof(typename RowOp::T) < 8)
    enqueue(reduce_packed<typename OfValues<RowOp>::type>, grid_of(plan), stream, plan, in, out);
  else
    throw UnplannedDType();
}

template <class Op>
struct ForColumns {
  using type = Op;
};
template <class T>
  requires kIsHalf<T>
struct ForColumns<MaximumIndex<T>> {
  using type = MaximumKey<T>;
};

template <class RowOp>
void launch_kernel(const ShortColumnPlan& plan, const void* in, void* out, const Workspace&, cudaStream_t stream) {
  using Op = typename ForColumns<RowOp>::type;
  using T = typename Op::T;
  if constexpr (std::is_same_v<typename RowOp::Extra, NoExtra> && sizeof(T) < 8) {
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
  Grid grid = grid_of(plan);
  grid.early = plan.early;
  enqueue(reduce_columns<Op>, grid, stream, plan, static_cast<const typename Op::T*>(in), out,
          static_cast<unsigned*>(workspace.counters), static_cast<typename Op::State*>(workspace.partials));
}

template <template <class> class Op>
void launch_floating(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  const auto launch = [&]<class Kernel>(const Kernel& kernel) {
    if constexpr (!std::is_same_v<Kernel, CopyPlan>)
      dispatch_floating(kernel.in,
                        [&](auto t) { launch_kernel<Op<typename decltype(t)::type>>(kernel, in, out, workspace, stream); });
  };
  std::visit(launch, plan.kernel);
}

}  // namespace xgemm::reduce
