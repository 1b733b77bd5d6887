// Host dispatch of one operator over the kernels for columns and for single elements.
#pragma once
#include "device/launch.h"
#include "reduce/kernels/columns.cuh"
#include "reduce/kernels/elements.cuh"
#include "reduce/kernels/operators/index.cuh"
#include "reduce/kernels/short_columns.cuh"
#include "reduce/launch.h"

namespace xgemm::reduce {

template <class RowOp>
void launch_columns(const ElementPlan& plan, const void* in, void* out, const Workspace&, cudaStream_t stream) {
  if constexpr (std::is_same_v<typename RowOp::Extra, NoExtra>) {
    Grid grid = grid_of(plan);
    grid.threads = dim3(static_cast<unsigned>(plan.lanes), static_cast<unsigned>(plan.rows));
    enqueue(reduce_elements<typename OfValues<RowOp>::type>, grid, stream, plan, in, out);
  } else {
    throw UnplannedDType();
  }
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
void launch_columns(const ShortColumnPlan& plan, const void* in, void* out, const Workspace&, cudaStream_t stream) {
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
void launch_columns(const ColumnPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using Op = typename ForColumns<RowOp>::type;
  Grid grid = grid_of(plan);
  grid.early = plan.early;
  enqueue(reduce_columns<Op>, grid, stream, plan, static_cast<const typename Op::T*>(in), out,
          static_cast<unsigned*>(workspace.counters), static_cast<typename Op::State*>(workspace.partials));
}

/// `plan` holds neither a CopyPlan nor a RowPlan.
template <template <class> class Op>
void launch_floating_columns(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  const auto launch = [&]<class Kernel>(const Kernel& kernel) {
    if constexpr (!std::is_same_v<Kernel, CopyPlan> && !std::is_same_v<Kernel, RowPlan>)
      dispatch_floating(kernel.in,
                        [&](auto t) { launch_columns<Op<typename decltype(t)::type>>(kernel, in, out, workspace, stream); });
  };
  std::visit(launch, plan.kernel);
}

}  // namespace xgemm::reduce
