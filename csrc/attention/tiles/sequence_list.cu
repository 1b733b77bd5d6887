// The list of sequences' tiles.
#include "attention/tiles/instances.h"
#include "attention/tiles/sequence_list.cuh"
#include "device/launch.h"

namespace xgemm::attention {

void launch_sequence_list(const WithSequences<TileArguments>& arguments, SequenceItem* list, cudaStream_t stream) {
  enqueue(list_sequences, {.blocks = 1, .threads = kListThreads, .early = true}, stream, arguments, list);
}

}  // namespace xgemm::attention
