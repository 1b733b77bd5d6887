// The batch and the rows of a block of simt/tile.cuh, and where its keys lie.
#pragma once
#include "attention/simt/softmax.cuh"
#include "attention/tiles/sequences.cuh"

namespace xgemm::attention {

template <bool kSequences>
struct Batch {
  std::uint32_t batch;
  int split, first_row, end_row;  ///< packed rows
  __device__ __forceinline__ Batch(const Arguments& a, std::uint32_t rest, int first)
      : batch(rest % a.batches), split(static_cast<int>(rest / a.batches)), first_row(first), end_row(a.group * a.sq) {}
  __device__ __forceinline__ const Arguments& bounds(const Arguments& a) const { return a; }
  /// Does a key of the sequence exist? The distance of row `row` after key `first`, beside base(first).
  static constexpr bool exists(const Arguments&, int) { return true; }
  __device__ __forceinline__ std::int64_t base(const Operand& x, int first) const { return first * x.row; }
  __device__ __forceinline__ std::int64_t row(const Arguments&, const Operand& x, int, int row) const { return row * x.row; }
};

/// A block for a tile of rows of a sequence and key head. Packed rows are numbered, and see keys, as those of one batch.
template <>
struct Batch<true> {
  std::uint32_t batch;
  int split = 0, first_row, end_row, sequence, key_row;
  SequenceBounds limits;
  __device__ __forceinline__ Batch(const SimtArguments<true>& a, std::uint32_t rest, int first) {
    const Sequences& s = a.sequences;
    const auto heads = a.batch_sizes[1];
    sequence = static_cast<int>(rest / heads);
    const bool packed = s.query_offsets != nullptr;
    batch = packed ? rest % heads : rest;
    const SequenceItem x = describe_sequence(s, sequence);
    key_row = x.key_row;
    limits = bounds_of(s, x);
    limits.first -= x.query_row, limits.last -= x.query_row;
    first_row = x.query_row * a.group + first, end_row = (x.query_row + x.sq) * a.group;
  }
  __device__ __forceinline__ const SequenceBounds& bounds(const Arguments&) const { return limits; }
  __device__ __forceinline__ int page(const Sequences& s, int key) const {
    return s.table == nullptr ? sequence : __ldg(s.table + sequence * s.table_step + s.page_rows.divide(key));
  }
  __device__ __forceinline__ bool exists(const SimtArguments<true>& a, int key) const {
    return a.sequences.table == nullptr ||
           static_cast<unsigned>(page(a.sequences, key)) < static_cast<unsigned>(a.sequences.pages);
  }
  __device__ __forceinline__ std::int64_t base(const Operand&, int) const { return 0; }
  __device__ __forceinline__ std::int64_t row(const SimtArguments<true>& a, const Operand& x, int first, int row) const {
    const Sequences& s = a.sequences;
    const int key = first + row;
    if (s.key_offsets != nullptr) return std::int64_t{key_row + key} * x.row;
    const int in_page = s.table == nullptr ? key : key - s.page_rows.divide(key) * static_cast<int>(s.page_rows.divisor);
    return page(s, key) * a.page_steps[&x == &a.value] + in_page * x.row;
  }
};

}  // namespace xgemm::attention
