// Shared by the programs of the attention kernels: a case's sizes, its mask, its last outer batch alone, the loop over cases.
#pragma once
#include <algorithm>
#include <iostream>
#include <random>

#include "attention/mma/launch.h"
#include "attention/simt/launch.h"
#include "attention/tiles/instances.h"
#include "attention/wgmma/launch.h"
#include "attention/wgmma/wide.h"
#include "check.h"
#include "device/numeric.cuh"

namespace xgemm::attention {

/// The case of an input line; the fields: attention_wgmma.cpp.
struct Case {
  std::uint64_t seed;
  int sm_count, outer, inner, group, sq, sk, d, dv, bshd, first, last, mask, heads, rows, special;
  double softcap;
  int sinks, aligned, shared;
};

/// Checks the cases of the standard input. Returns how many failed.
template <class Check>
int check_cases(const Check& check) {
  Case c;
  int failed = 0;
  while (std::cin >> c.seed >> c.sm_count >> c.outer >> c.inner >> c.group >> c.sq >> c.sk >> c.d >> c.dv >> c.bshd >> c.first >>
         c.last >> c.mask >> c.heads >> c.rows >> c.special >> c.softcap >> c.sinks >> c.aligned >> c.shared)
    failed += run_checks([&] { check(c); });
  return failed;
}

/// A call of the case's sizes: two batch dims, outer and inner.
Arguments sizes_of(const auto& c, DType dtype) {
  Arguments a;
  a.dtype = dtype;
  a.batch_dims = 2;
  a.batch_sizes[0] = static_cast<unsigned>(c.outer), a.batch_sizes[1] = static_cast<unsigned>(c.inner);
  a.batches = static_cast<unsigned>(c.outer * c.inner);
  a.group = c.group, a.sq = c.sq, a.sk = c.sk, a.d = c.d, a.dv = c.dv;
  return a;
}

/// Dense query, key and value in the case's layout.
template <class T>
void set_operands(Arguments& a, const auto& c, const Buffer<T>& query, const Buffer<T>& key, const Buffer<T>& value) {
  const auto operand = [&](const Buffer<T>& x, int heads, int length, int columns, int group) {
    Operand o{.data = x.data(), .column = 1};
    const std::int64_t head = c.bshd ? columns : std::int64_t{length} * columns;
    o.row = c.bshd ? std::int64_t{heads} * columns : columns;
    o.group = head, o.batch[1] = head * group, o.batch[0] = std::int64_t{heads} * length * columns;
    o.vector = columns * sizeof(T) % 16 == 0;
    return o;
  };
  a.query = operand(query, c.inner * c.group, c.sq, c.d, c.group);
  a.key = operand(key, c.inner, c.sk, c.d, 1), a.value = operand(value, c.inner, c.sk, c.dv, 1);
}

/// A contiguous mask (outer, heads or 1, rows or 1, sk) for the call.
void set_mask(Arguments& a, const auto& c, const void* data, DType dtype) {
  const std::int64_t head = (c.rows ? std::int64_t{c.sq} : 1) * c.sk;
  a.masked = true, a.mask_dtype = dtype, a.mask.data = data;
  a.mask.column = 1, a.mask.row = c.rows ? c.sk : 0, a.mask.group = c.heads ? head : 0;
  a.mask.batch[1] = c.heads ? c.group * head : 0, a.mask.batch[0] = (c.heads ? c.inner * c.group : 1) * head;
}

/// The call of the last outer batch alone.
inline Arguments last_batch(Arguments a) {
  const auto advance = [&](Operand& x, DType dtype) {
    if (x.data == nullptr) return;
    const std::int64_t elements = (a.batch_sizes[0] - 1) * x.batch[0];
    x.data = static_cast<const char*>(x.data) + elements * static_cast<std::int64_t>(size_of(dtype));
  };
  advance(a.query, a.dtype), advance(a.key, a.dtype), advance(a.value, a.dtype);
  advance(a.mask, a.mask_dtype), advance(a.sinks, a.sinks_dtype);
  a.batch_sizes[0] = 1, a.batches = a.batch_sizes[1];
  return a;
}

/// Runs the last outer batch alone, with another seed and number of SMs: the same bits, unless keys are split, which depends on
/// the batch. `run` returns the number of splits; `splits`: that of the whole call, which gave output and lse.
template <class T>
void check_last_batch(const auto& c, const Arguments& a, const Buffer<T>& output, const Buffer<float>& lse, std::int64_t splits,
                      const auto& run) {
  const std::size_t before = lse.size() / c.outer * (c.outer - 1), row = c.dv;
  Buffer<T> output_alone((lse.size() - before) * row, static_cast<T>(NAN));
  Buffer<float> lse_alone(lse.size() - before, NAN);
  Arguments last = last_batch(a);
  last.output = output_alone.data(), last.lse = lse_alone.data();
  if (run(last, c.sm_count + 1, c.seed + 5) > 1 || splits > 1) return;
  require(std::memcmp(output_alone.data(), output.data() + before * row, output_alone.size() * sizeof(T)) == 0 &&
              std::memcmp(lse_alone.data(), lse.data() + before, lse_alone.size() * sizeof(float)) == 0,
          "equal bits of the last batch alone");
}

// Launches that no case of a program makes, which does not link them: the host code of a family refers to all of its kernels.
#define NOT_LINKED(function, ...) \
  [[gnu::weak]] void function(__VA_ARGS__) { std::abort(); }
NOT_LINKED(launch_sequence_list, const WithSequences<TileArguments>&, SequenceItem*, cudaStream_t)
NOT_LINKED(launch_merge, DType, const TileArguments&, std::int64_t, cudaStream_t)
NOT_LINKED(launch_merge, DType, const WithSequences<TileArguments>&, std::int64_t, cudaStream_t)
NOT_LINKED(launch_wide, DType, bool, const TileArguments&, int, cudaStream_t)
NOT_LINKED(launch_wide, DType, bool, const WithSequences<TileArguments>&, int, cudaStream_t)
template <>
NOT_LINKED(launch_simt_tile<true>, const SimtPlan&, const SimtArguments&, cudaStream_t)
#define NOT_LINKED_BY_DTYPE(function, ...) \
  template <>                              \
  NOT_LINKED(function<half>, __VA_ARGS__)  \
  template <>                              \
  NOT_LINKED(function<bf16>, __VA_ARGS__)
NOT_LINKED_BY_DTYPE(launch_mma, bool, int, bool, const MmaArguments&, unsigned, cudaStream_t);
NOT_LINKED_BY_DTYPE(launch_mma_sequences, bool, int, const WithSequences<MmaArguments>&, unsigned, cudaStream_t);
NOT_LINKED_BY_DTYPE(launch_wgmma, int, Masking, const TileArguments&, int, cudaStream_t);
NOT_LINKED_BY_DTYPE(launch_wgmma_sequences, int, const WithSequences<TileArguments>&, int, cudaStream_t);
#undef NOT_LINKED_BY_DTYPE
#undef NOT_LINKED

}  // namespace xgemm::attention
