// Host dispatch of one operator over the element types. Minima share the maxima's kernels, means the sums'.
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

/// What reads a row: the general kernel, or reduce_runs for aligned or shifted rows.
enum class Runs : std::uint8_t { none, aligned, shifted };

/// Rows of one split must be evenly spaced, their results contiguous.
template <class T>
Runs runs_of(const RowPlan& plan, const void* in) {
  const std::int64_t width = Pack<T>::kCount, pitch = plan.kept.stride[0];
  const bool one = plan.kept.dims == 0 || (plan.kept.dims == 1 && plan.kept.out[0] == 1);
  if (plan.splits_per_run > 0) return Runs::shifted;
  if (!plan.vector || plan.reduced.dims != 1 || !one) return Runs::none;
  const bool aligned = plan.length % width == 0 && pitch % width == 0 && reinterpret_cast<std::uintptr_t>(in) % 16 == 0;
  return aligned ? Runs::aligned : Runs::shifted;
}

inline Grid grid_of(const Reduction& plan) {
  return {.blocks = dim3(static_cast<unsigned>(plan.ctas)), .threads = dim3(static_cast<unsigned>(plan.threads)), .early = true};
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
  if constexpr (sizeof(T) < 8) {
    const Runs runs = runs_of<T>(plan, in);
    if (runs == Runs::aligned) return enqueue_rows<Op>(reduce_runs<Op, false>, plan, in, out, workspace, stream);
    if (runs == Runs::shifted && (kHasSplits<Op, true> || plan.splits == 1))
      return enqueue_rows<Op>(reduce_runs<Op, true>, plan, in, out, workspace, stream);
  }
  enqueue_rows<Op>(reduce_rows<Op>, plan, in, out, workspace, stream);
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
  using T = typename RowOp::T;
  if constexpr (std::is_same_v<typename RowOp::Extra, NoExtra> && sizeof(T) < 8) {
    const auto go = [&]<class Op, int kWidth>() {
      Grid grid = grid_of(plan);
      grid.shared_bytes = static_cast<std::size_t>(short_column_bytes<Op>(plan));
      enqueue(reduce_short_columns<Op, kWidth>, grid, stream, plan, in, out);
    };
    if (plan.width > 1) return go.template operator()<typename ForColumns<RowOp>::type, Pack<T>::kCount>();
    go.template operator()<typename OfValues<RowOp>::type, 1>();
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
  dispatch_floating(reduction_of(plan).in,
                    [&](auto t) { launch_typed<Op<typename decltype(t)::type>>(plan, in, out, workspace, stream); });
}

}  // namespace xgemm::reduce
