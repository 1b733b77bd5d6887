// Appending to caches, for each size of a word.
#include <vector_types.h>

#include "attention/tiles/append.cuh"
#include "device/integer.h"
#include "device/launch.h"

namespace xgemm::attention {

void launch_append(const AppendArguments& arguments, int word_bytes, cudaStream_t stream) {
  const std::int64_t words = arguments.words[0] + arguments.words[1];
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(words, kAppendThreads)), .threads = kAppendThreads, .early = true};
  const auto kernel = word_bytes == 16  ? append_rows<uint4>
                      : word_bytes == 8 ? append_rows<std::uint64_t>
                      : word_bytes == 4 ? append_rows<std::uint32_t>
                                        : append_rows<std::uint16_t>;
  enqueue(kernel, grid, stream, arguments);
}

}  // namespace xgemm::attention
