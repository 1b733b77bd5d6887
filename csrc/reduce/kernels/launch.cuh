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
  if (plan.splits > 1)  // the states of its splits (or its cluster's) and no more: an SM holds many CTAs of one warp
    grid.shared_bytes = static_cast<std::size_t>(plan.cluster > 1 ? plan.splits : plan.per_cta) * sizeof(typename Op::State);
  grid.cluster = static_cast<unsigned>(plan.cluster);
  enqueue(kernel, grid, stream, plan, static_cast<const typename Op::T*>(in), out, static_cast<unsigned*>(workspace.counters),
          static_cast<typename Op::State*>(workspace.partials));
}

/// Launches the kernel of a plan, by the plan's type.
template <template <class> class Op, class T>
struct Launcher {
  /// argmax of 16-bit elements has an operator of its own over columns; where single elements are read, fp32, fp16 and bf16
  /// differ in their loads alone.
  using Columns = std::conditional_t<kIsHalf<T> && std::is_same_v<Op<T>, MaximumIndex<T>>, MaximumKey<T>, Op<T>>;
  using Values = Op<Value<T>>;
  static constexpr bool kPlain = std::is_same_v<typename Op<T>::Extra, NoExtra>;
  const void* in;
  void* out;
  const Workspace& workspace;
  cudaStream_t stream;

  void operator()(const CopyPlan&) const {}  // launch_copy's
  void operator()(const RowPlan& plan) const {
    const auto go = [&](auto* kernel) { enqueue_rows<Op<T>>(kernel, plan, in, out, workspace, stream); };
    if constexpr (sizeof(T) < 8) {
      switch (runs_of<T>(plan, in)) {
        case Runs::none: break;
        case Runs::few_lanes:
          if constexpr (kHasFewLanes<Op<T>>) return go(reduce_runs<Op<T>, Runs::few_lanes>);
          [[fallthrough]];
        case Runs::aligned: return go(reduce_runs<Op<T>, Runs::aligned>);
        case Runs::shifted_rows: return go(reduce_runs<Op<T>, Runs::shifted_rows>);
        case Runs::shifted_splits:
          if constexpr (kHasShiftedSplits<Op<T>>) return go(reduce_runs<Op<T>, Runs::shifted_splits>);
          break;
      }
    }
    go(reduce_rows<Op<T>>);
  }
  void operator()(const ElementPlan& plan) const {
    Grid grid = grid_of(plan);
    grid.threads = dim3(static_cast<unsigned>(plan.lanes), static_cast<unsigned>(plan.rows));
    if constexpr (kPlain) return enqueue(reduce_elements<Values>, grid, stream, plan, in, out);
    throw UnplannedDType();
  }
  void operator()(const PackedPlan& plan) const {
    if constexpr (kPlain && sizeof(T) < 8) return enqueue(reduce_packed<Values>, grid_of(plan), stream, plan, in, out);
    throw UnplannedDType();
  }
  void operator()(const ShortColumnPlan& plan) const {
    if constexpr (kPlain && sizeof(T) < 8) {
      Grid grid = grid_of(plan);
      const int results = plan.width > 1 ? plan.lanes * plan.width * plan.result_bytes : 0;  // behind the states
      grid.shared_bytes = static_cast<std::size_t>(short_column_state_bytes<Columns>(plan) + results);
      const auto kernel = plan.width > 1 ? reduce_short_columns<Columns, Pack<T>::kCount> : reduce_short_columns<Columns, 1>;
      return enqueue(kernel, grid, stream, plan, static_cast<const T*>(in), out);
    }
    throw UnplannedDType();
  }
  void operator()(const ColumnPlan& plan) const {
    Grid grid = grid_of(plan);
    grid.early = plan.early;
    enqueue(reduce_columns<Columns>, grid, stream, plan, static_cast<const T*>(in), out,
            static_cast<unsigned*>(workspace.counters), static_cast<typename Columns::State*>(workspace.partials));
  }
};

template <template <class> class Op>
void launch_floating(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  dispatch_floating(reduction_of(plan).in,
                    [&]<class T>(Type<T>) { std::visit(Launcher<Op, T>{in, out, workspace, stream}, plan.kernel); });
}

}  // namespace xgemm::reduce
