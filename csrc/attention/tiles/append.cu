// Writes sequences' new keys and values to their caches.
//
//   Operands   new rows (sequence, new, head, columns), caches by pages: any strides. `Word`: what a thread copies, 16 bytes of a
//              row or one element.
//   Order      pages may be shared only where their rows are not written. Rows without room, or whose page is out of bounds, are
//              dropped.
//   Floor      reads and writes the new rows.
#include <vector_types.h>

#include "attention/tiles/instances.h"
#include "device/integer.h"
#include "device/launch.h"
#include "device/ptx/grid.cuh"

namespace xgemm::attention {

inline constexpr int kAppendThreads = 256;

template <class Word>
__global__ void __launch_bounds__(kAppendThreads) append_rows(const __grid_constant__ AppendArguments a) {
  ptx::grid_release();
  ptx::grid_wait();
  std::int64_t rest = static_cast<std::int64_t>(blockIdx.x) * kAppendThreads + threadIdx.x;
  const int which = rest < a.words[0] ? 0 : 1;
  if (which == 1) rest -= a.words[0];
  if (rest >= a.words[which]) return;
  const AppendArguments::Operand& x = a.operands[which];
  const auto split = [&](const Divider& by) {
    const std::int64_t quotient = by.divide(rest), remainder = rest - quotient * static_cast<std::int64_t>(by.divisor);
    rest = quotient;
    return remainder;
  };
  const std::int64_t column = split(x.columns), head = split(a.heads), new_row = split(a.appended);
  const auto sequence = static_cast<int>(rest);
  const Sequences& s = a.sequences;
  const std::int64_t row = max(0, __ldg(s.key_lengths + sequence)) + new_row;
  if (row >= s.key_rows) return;
  int page = sequence, in_page = static_cast<int>(row);
  if (s.table != nullptr) {
    const int index = s.page_rows.divide(in_page);
    page = __ldg(s.table + sequence * s.table_step + index);
    in_page -= index * static_cast<int>(s.page_rows.divisor);
    if (static_cast<unsigned>(page) >= static_cast<unsigned>(s.pages)) return;
  }
  static_cast<Word*>(x.to)[page * x.to_outer + in_page * x.to_row + head * x.to_head + column * x.to_column] =
      static_cast<const Word*>(
          x.from)[sequence * x.from_outer + new_row * x.from_row + head * x.from_head + column * x.from_column];
}

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
