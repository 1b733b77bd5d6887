// Merges the partial results of attention's splits of the keys, in order, and normalises.
//
// Contract: partials of simt/tile.cuh, fp32 or fp64, `stride` elements per row; one warp per row, all column counts. A row's
// splits are those with keys that it may see; others may be unwritten. Floor: reads the partials once.
#pragma once
#include "attention/arguments.h"
#include "attention/simt/softmax.cuh"
#include "device/warp.cuh"

namespace xgemm::attention {

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

}  // namespace xgemm::attention
