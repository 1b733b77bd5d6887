// Shared by the programs of the attention kernels: a case's sizes, its mask, its last outer batch alone, the loop over cases.
#pragma once
#include <algorithm>
#include <iostream>
#include <random>

#include "attention/arguments.h"
#include "attention/mma/arguments.h"
#include "check.h"

namespace xgemm::attention {

inline std::size_t place(std::int64_t i) { return static_cast<std::size_t>(i); }

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

// Launches that no case makes, for programs that do not link them: the host code of a family refers to all of its kernels.
[[gnu::weak]] void launch_sequence_list(const WithSequences<TileArguments>&, SequenceItem*, cudaStream_t) { std::abort(); }
[[gnu::weak]] void launch_merge(DType, const WithSequences<TileArguments>&, std::int64_t, cudaStream_t) { std::abort(); }
[[gnu::weak]] void launch_mma_sequences_half(bool, int, const WithSequences<MmaArguments>&, unsigned, cudaStream_t) {
  std::abort();
}
[[gnu::weak]] void launch_mma_sequences_bf16(bool, int, const WithSequences<MmaArguments>&, unsigned, cudaStream_t) {
  std::abort();
}
[[gnu::weak]] void launch_wgmma_sequences_half(int, const WithSequences<TileArguments>&, int, cudaStream_t) { std::abort(); }
[[gnu::weak]] void launch_wgmma_sequences_bf16(int, const WithSequences<TileArguments>&, int, cudaStream_t) { std::abort(); }
[[gnu::weak]] void launch_wide_half(bool, const TileArguments&, int, cudaStream_t) { std::abort(); }
[[gnu::weak]] void launch_wide_bf16(bool, const TileArguments&, int, cudaStream_t) { std::abort(); }

}  // namespace xgemm::attention
