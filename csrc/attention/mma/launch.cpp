#include "attention/mma/launch.h"

#include "attention/tiles/instances.h"
#include "attention/tiles/problem.h"
#include "device/numeric.cuh"

namespace xgemm::attention {
namespace {

void fill_mma_arguments(MmaArguments& g, const Plan& plan, const Arguments& a, void* memory, cudaStream_t stream) {
  fill_arguments(g, plan, a, memory, stream);
  const auto operand = [&](const Operand& x) {
    return MmaArguments::Operand{x.data, batch_stride(a, x, 1), batch_stride(a, x, 0), x.group, x.row, 0, 0, false};
  };
  g.queries = operand(a.query), g.keys = operand(a.key), g.values = operand(a.value);
  g.d = a.d;
}

}  // namespace

void launch_mma(const Plan& plan, const Arguments& a, void* memory, cudaStream_t stream) {
  MmaArguments g{};
  fill_mma_arguments(g, plan, a, memory, stream);
  g.alone = plan.alone;
  if (plan.masking != Masking::edges) g.mask_rows = own_row_masks(a, plan.packed), g.mask_vector = has_mask_vectors(a);
  (a.dtype == DType::f16 ? launch_mma<half> : launch_mma<bf16>)(plan.table.data() == kMmaTiles.data(), plan.tile,
                                                                plan.masking != Masking::edges, g,
                                                                static_cast<unsigned>(plan.items()), stream);
  if (plan.through_memory) launch_merge(a.dtype, g, plan.merged_rows(), stream);
}

void launch_mma(const SequencePlan& plan, const Arguments& a, const Sequences& sequences, void* memory, cudaStream_t stream) {
  WithSequences<MmaArguments> g{};
  fill_mma_arguments(g, plan.tiles, a, memory, stream);
  const auto set_strides = [&](MmaArguments::Operand& to, const Operand& x) {
    to.outer = sequences.key_offsets == nullptr ? x.batch[0] : 0;  // whatever the number of sequences
    to.outer_bytes = static_cast<std::uint32_t>(2 * to.outer), to.row_bytes = static_cast<std::uint32_t>(2 * x.row);
    to.narrow = to.outer_bytes == 2 * to.outer && to.row_bytes == 2 * x.row;
  };
  set_strides(g.keys, a.key), set_strides(g.values, a.value);
  const WithSequences<TileArguments> of_tiles = sequence_arguments(plan, g, sequences, memory, stream);
  g.sequences = of_tiles.sequences, g.schedule = of_tiles.schedule;
  (a.dtype == DType::f16 ? launch_mma_sequences<half>
                         : launch_mma_sequences<bf16>)(plan.tiles.table.data() == kMmaTiles.data(), plan.tiles.tile, g,
                                                       static_cast<unsigned>(plan.tiles.items()), stream);
  if (plan.tiles.through_memory) launch_merge(a.dtype, of_tiles, plan.merged_rows(), stream);
}

}  // namespace xgemm::attention
