// Host dispatch of one operator over the kernels for rows. Minima share the maxima's kernels, means the sums'.
#pragma once
#include "device/launch.h"
#include "reduce/kernels/rows.cuh"
#include "reduce/kernels/runs.cuh"
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
void launch_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using T = typename Op::T;
  if constexpr (sizeof(T) < 8) {
    const Runs runs = runs_of<T>(plan, in);
    if (runs == Runs::aligned) return enqueue_rows<Op>(reduce_runs<Op, false>, plan, in, out, workspace, stream);
    if (runs == Runs::shifted && (kHasSplits<Op, true> || plan.splits == 1))
      return enqueue_rows<Op>(reduce_runs<Op, true>, plan, in, out, workspace, stream);
  }
  enqueue_rows<Op>(reduce_rows<Op>, plan, in, out, workspace, stream);
}

template <template <class> class Op>
void launch_floating_rows(const RowPlan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  dispatch_floating(plan.in, [&](auto t) { launch_rows<Op<typename decltype(t)::type>>(plan, in, out, workspace, stream); });
}

}  // namespace xgemm::reduce
