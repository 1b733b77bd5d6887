// Host dispatch of one operator over the element types. Eight: signed, unsigned and bool bytes share a kernel, minima share the
// maxima's, means the sums'.
#pragma once
#include "device/all_shared.h"
#include "device/launch.h"
#include "reduce/kernels/bulk_rows.cuh"
#include "reduce/kernels/columns.cuh"
#include "reduce/kernels/elements.cuh"
#include "reduce/kernels/operators/index.cuh"
#include "reduce/kernels/operators/logsumexp.cuh"
#include "reduce/kernels/row_steps.cuh"
#include "reduce/kernels/rows.cuh"
#include "reduce/kernels/runs.cuh"
#include "reduce/kernels/short_columns.cuh"
#include "reduce/launch.h"

namespace xgemm::reduce {

/// The instantiation of reduce_runs, if any, that reads these rows. Their results must be contiguous.
template <class T>
Runs runs_of(const Plan& plan, const void* in) {
  const std::int64_t width = Pack<T>::kCount, pitch = plan.kept.stride[0];
  const bool one = plan.kept.dims == 0 || (plan.kept.dims == 1 && plan.kept.out[0] == 1);
  if (plan.pieces > 0) return Runs::shifted_strips;
  if (!plan.vector || plan.reduced.dims != 1 || !one) return Runs::none;
  if (plan.length % width == 0 && pitch % width == 0 && reinterpret_cast<std::uintptr_t>(in) % 16 == 0)
    return plan.lanes == kWarpSize ? Runs::warps : Runs::parts;
  return plan.strips == 1 ? Runs::shifted_rows : Runs::shifted_strips;
}

template <class Op>
void launch_bulk_rows(const Plan& plan, const void* in, void* out, cudaStream_t stream) {
  allow_all_shared<reduce_bulk_rows<Op>>();
  const std::int64_t warp_rows = kWarpSize / plan.lanes, rows = kBulkWarps * warp_rows;
  const Grid grid{.blocks = dim3(static_cast<unsigned>((plan.outputs + rows - 1) / rows)),
                  .threads = dim3(kBulkWarps * kWarpSize),
                  .shared_bytes = static_cast<std::size_t>(rows * plan.full * 16),
                  .early = true};
  enqueue(reduce_bulk_rows<Op>, grid, stream, plan, static_cast<const typename Op::T*>(in), out);
}

template <class Op>
void launch_rows(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using T = typename Op::T;
  const auto go = [&]<auto kKernel>() {
    if (plan.cluster > 8)  // not every GPU supports such clusters
      once_a_device<kKernel>(
          [](int) { return cudaFuncSetAttribute(kKernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) == cudaSuccess; });
    const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.blocks)),
                    .threads = dim3(static_cast<unsigned>(plan.threads)),
                    .shared_bytes = row_shared_bytes<Op>(plan),
                    .cluster = static_cast<unsigned>(plan.cluster),
                    .early = true};
    enqueue(kKernel, grid, stream, plan, static_cast<const T*>(in), out, static_cast<unsigned*>(workspace.counters),
            static_cast<typename Op::State*>(workspace.partials));
  };
  if constexpr (std::is_same_v<T, float> || kIsHalf<T>) {
    const Runs runs = runs_of<T>(plan, in);
    if constexpr (kIsHalf<T> && std::is_base_of_v<LogSumExp<T>, Op>) {
      if (plan.bulk && (runs == Runs::warps || runs == Runs::parts)) return launch_bulk_rows<Op>(plan, in, out, stream);
    }
    switch (runs) {
      case Runs::warps: return go.template operator()<reduce_runs<Op, Runs::warps>>();
      case Runs::parts: return go.template operator()<reduce_runs<Op, Runs::parts>>();
      case Runs::shifted_rows:  // operators that need even more registers take reduce_rows
        if constexpr (!Op::kTotal) return go.template operator()<reduce_runs<Op, Runs::shifted_rows>>();
        break;
      case Runs::shifted_strips:  // operators that need more registers are as fast in reduce_rows
        if constexpr (!Op::kTotal && !Op::kFindsLater) return go.template operator()<reduce_runs<Op, Runs::shifted_strips>>();
        break;
      case Runs::none: break;
    }
  }
  go.template operator()<reduce_rows<Op>>();
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
void launch_typed(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  using Op = typename ForColumns<RowOp>::type;
  if (plan.kernel == Kernel::rows) return launch_rows<RowOp>(plan, in, out, workspace, stream);
  const auto go_short = [&](auto* kernel, int shared_bytes, unsigned rows = 1) {  // rows: the size of threadIdx.y
    const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.blocks)),
                    .threads = dim3(static_cast<unsigned>(plan.threads) / rows, rows),
                    .shared_bytes = static_cast<std::size_t>(shared_bytes),
                    .early = true};
    enqueue(kernel, grid, stream, plan, static_cast<const typename Op::T*>(in), out);
  };
  if (plan.kernel == Kernel::elements) return go_short(reduce_elements<RowOp>, 0, static_cast<unsigned>(plan.per_block));
  if constexpr ((std::is_same_v<typename RowOp::T, float> || kIsHalf<typename RowOp::T>) && kAddsSteps<RowOp>)
    if (plan.kernel == Kernel::row_steps) return go_short(reduce_row_steps<RowOp>, 0);
  if constexpr (sizeof(typename Op::T) > 1 && std::is_same_v<typename RowOp::Extra, NoExtra>) {
    constexpr int kWidth = Pack<typename Op::T>::kCount;
    if (plan.kernel == Kernel::short_columns) {
      const int bytes = short_column_bytes<Op>(plan);
      if constexpr (takes_column_vectors(sizeof(typename Op::T))) {
        if (plan.width == kWidth) return go_short(reduce_short_columns<Op, kWidth>, bytes);
        if (plan.width == 4) return go_short(reduce_short_columns<Op, 4>, bytes);
      }
      return go_short(reduce_short_columns<Op, 1>, bytes);
    }
  }
  const auto go = [&](auto* kernel) {
    const Grid grid{.blocks = dim3(static_cast<unsigned>(plan.blocks)), .threads = dim3(kColumnThreads<Op>), .early = plan.early};
    enqueue(kernel, grid, stream, plan, static_cast<const typename Op::T*>(in), out, static_cast<unsigned*>(workspace.counters),
            static_cast<typename Op::State*>(workspace.partials));
  };
  if (plan.blocks_loaded) return go(reduce_columns<Op, true>);
  go(reduce_columns<Op, false>);
}

template <template <class> class Op>
void launch_floating(const Plan& plan, const void* in, void* out, const Workspace& workspace, cudaStream_t stream) {
  switch (plan.in) {
    case DType::f32: return launch_typed<Op<float>>(plan, in, out, workspace, stream);
    case DType::f16: return launch_typed<Op<half>>(plan, in, out, workspace, stream);
    case DType::bf16: return launch_typed<Op<bf16>>(plan, in, out, workspace, stream);
    case DType::f64: return launch_typed<Op<double>>(plan, in, out, workspace, stream);
    default: throw UnplannedDType();
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
