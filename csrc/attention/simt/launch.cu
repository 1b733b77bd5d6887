// The launch of a plan: a tile kernel, then the merge of partial results.
#include "attention/simt/launch.h"
#include "attention/simt/softmax.cuh"
#include "device/warp.cuh"

namespace xgemm::attention {

/// Merges the partial results of attention's splits of the keys, in order, and normalises.
///
/// Contract: partials of simt/tile.cuh, fp32 or fp64, `stride` elements per row; one warp per row, all column counts. A row's
/// splits are those with keys that it may see; others may be unwritten. Floor: reads the partials once.
template <class Acc>
__global__ void __launch_bounds__(kThreads) attention_merge(const __grid_constant__ Arguments a, int stride) {
  const std::int64_t rows = a.total_rows();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarpSize) + threadIdx.x / kWarpSize;
  if (row >= rows || (a.failed != nullptr && __ldcg(a.failed + row / (static_cast<std::int64_t>(a.group) * a.sq)) == 0)) return;
  const int position = static_cast<int>(a.output_rows.position(row)), begin = keys_begin(a, position),
            end = keys_end(a, position);
  const std::int64_t first = begin / kSplitKeys - a.first_split;  // the row's first split in memory
  const int splits = begin < end ? (end + kSplitKeys - 1) / kSplitKeys - begin / kSplitKeys : 0;
  const Acc* const maxima = static_cast<const Acc*>(a.partial_max) + first * rows + row;
  const Acc* const sums = static_cast<const Acc*>(a.partial_sum) + first * rows + row;

  for (int column = threadIdx.x % kWarpSize; column < a.dv || column < kWarpSize; column += kWarpSize) {
    const Acc* const outputs = static_cast<const Acc*>(a.partial_output) + (first * rows + row) * stride + column;
    const bool valid = column < a.dv;
    Acc maximum = -Acc(INFINITY), sum = 0, output = 0;
    if (splits > 0) maximum = maxima[0], sum = sums[0], output = valid ? outputs[0] : Acc(0);
#pragma unroll 2
    for (int split = 1; split < splits; ++split) {
      const Acc next = maxima[split * rows], both = fmax(maximum, next);
      const Acc factor = rescale(maximum, both), factor_next = rescale(next, both);
      sum = merged(sum, factor, sums[split * rows], factor_next);
      output = merged(output, factor, valid ? outputs[split * rows * stride] : Acc(0), factor_next);
      maximum = both;
    }
    const Acc keys = sum, inverse = finish_row(a, row, maximum, sum);
    if (valid)
      with_element_type<Acc>(a.dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        static_cast<T*>(a.output)[a.output_rows.place(row) * a.dv + column] = convert<T>(normalised(output, keys, inverse));
      });
    if (a.lse != nullptr && column == 0) static_cast<Acc*>(a.lse)[row] = log_sum(maximum, sum);
  }
}

void launch_simt(const SimtPlan& plan, SimtArguments a, void* partials, cudaStream_t stream) {
  const SimtTile& tile = plan.info();
  a.row_tiles = static_cast<std::uint32_t>(plan.row_tiles);
  a.first_split = plan.first_split, a.splits = plan.splits, a.parallel = plan.parallel;
  const std::int64_t bytes = plan.partials * a.total_rows() * tile.element_bytes();  // of a column
  char* const base = static_cast<char*>(partials);
  a.partial_output = base, a.partial_max = base + bytes * tile.head_size, a.partial_sum = base + bytes * (tile.head_size + 1);
  (tile.fp64 ? launch_simt_tile<true> : launch_simt_tile<false>)(plan, a, stream);
  if (!plan.parallel) return;
  constexpr std::int64_t kRows = kThreads / kWarpSize;
  const auto blocks = static_cast<unsigned>((a.total_rows() + kRows - 1) / kRows);
  const auto kernel = tile.fp64 ? attention_merge<double> : attention_merge<float>;
  kernel<<<blocks, kThreads, 0, stream>>>(a, tile.head_size);
}

SimtPlan plan_simt_sequences(const Arguments& a, const Sequences& s) {
  const std::int64_t rows = std::int64_t{s.max_q} * a.group, key_heads = a.batch_sizes[1];
  return plan_simt(
      {.fp64 = a.dtype == DType::f64, .batches = s.count * key_heads, .rows = rows, .key_end = s.max_k, .d = a.d, .dv = a.dv});
}

SimtArguments simt_arguments(const Arguments& arguments, const Sequences& sequences) {
  SimtArguments a{arguments, sequences, {arguments.key.batch[0], arguments.value.batch[0]}};
  a.key.batch[0] = a.value.batch[0] = 0;
  return a;
}

}  // namespace xgemm::attention
