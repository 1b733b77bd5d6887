// Shared by the programs of the attention kernels: a case's sizes, its mask, its last outer batch alone, the loop over cases.
#pragma once
#include <algorithm>
#include <iostream>
#include <optional>
#include <random>

#include "attention/simt/launch.h"
#include "attention/tiles/instances.h"
#include "attention/tiles/problem.h"
#include "device/integer.h"
#include "device/numeric.cuh"
#include "programs/attention_reference.h"

namespace xgemm::attention {

/// The case of an input line; the fields: attention_wgmma.cpp.
struct Case {
  std::uint64_t seed;
  int sm_count, outer, inner, group, sq, sk, d, dv, bshd, first, last, mask, heads, rows, special;
  double softcap;
  int sinks, aligned, shared;
  friend std::istream& operator>>(std::istream& in, Case& c) {
    return in >> c.seed >> c.sm_count >> c.outer >> c.inner >> c.group >> c.sq >> c.sk >> c.d >> c.dv >> c.bshd >> c.first >>
           c.last >> c.mask >> c.heads >> c.rows >> c.special >> c.softcap >> c.sinks >> c.aligned >> c.shared;
  }
};

/// Checks the cases of the standard input. Returns how many failed.
template <class Case>
int check_cases(void (*check)(const Case&)) {
  int failed = 0;
  for (Case c; std::cin >> c;) failed += run_checks([&] { check(c); });
  return failed;
}

/// Scales the scores, with the case's soft cap. Returns the scale before it.
inline double set_scale(Arguments& a, double scale, double softcap) {
  a.scale = softcap == 0 ? scale : softcap, a.cap_scale = softcap == 0 ? 0 : scale / softcap;
  return scale;
}
inline double capped(double score, double softcap) { return softcap == 0 ? score : softcap * std::tanh(score / softcap); }

/// A call of the case's sizes: two batch dims, outer and inner.
inline Arguments sizes_of(const Case& c, DType dtype) {
  Arguments a;
  a.dtype = dtype;
  a.batch_dims = 2;
  a.batch_sizes[0] = c.outer, a.batch_sizes[1] = c.inner, a.batches = c.outer * c.inner;
  a.group = c.group, a.sq = c.sq, a.sk = c.sk, a.d = c.d, a.dv = c.dv, a.first = c.first, a.last = c.last;
  return a;
}

/// Dense query, key and value in the case's layout.
template <class T>
void set_operands(Arguments& a, const Case& c, const Buffer<T>& query, const Buffer<T>& key, const Buffer<T>& value) {
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

/// Row sk / 2 of the last head of keys or values.
template <class T>
T* special_row(const Case& c, const Buffer<T>& x, const Operand& o) {
  return x.data() + (c.outer - 1) * o.batch[0] + (c.inner - 1) * o.batch[1] + c.sk / 2 * o.row;
}

/// special 1: a NaN in that key, 2: its scores are +inf.
template <class T>
void poison_key(const Case& c, const Arguments& a, const Buffer<T>& query, const Buffer<T>& key) {
  T* const special = special_row(c, key, a.key);
  if (c.special == 1) special[1] = static_cast<T>(NAN);
  if (c.special != 2) return;
  for (int x = 0; x < c.d; ++x) special[x] = static_cast<T>(x == 1 ? INFINITY : 0.f);
  for (std::size_t i = 0; i < query.size(); ++i) query[i] = static_cast<T>(std::abs(static_cast<float>(query[i])) + 0.01f);
}

/// A random mask (outer or 1, heads or 1, rows or 1, sk). With bshd, rows are before heads in memory; NaN between the rows.
template <class T>
class RandomMask {
 public:
  /// `lowest`: an additive mask's value in every third row.
  RandomMask(const Case& c, std::optional<double> lowest)
      : sk_(c.sk),
        heads_(c.heads ? c.inner * c.group : 1),
        rows_(c.rows ? c.sq : 1),
        outer_(c.shared ? 1 : c.outer),
        pitch_(c.aligned ? round_up(c.sk, 16) : c.sk),
        head_(c.bshd ? pitch_ : rows_ * pitch_),
        row_(c.bshd ? heads_ * pitch_ : pitch_),
        bias_(c.mask ? outer_ * heads_ * rows_ * sk_ : 0),
        flags_(c.mask == 1 ? places() : 0, 1),
        own_(c.mask == 2 ? places() : 0, static_cast<T>(NAN)),
        floats_(c.mask == 3 ? places() : 0, NAN) {
    std::mt19937_64 random(c.seed + 3);
    for (std::int64_t from = 0; from < std::ssize(bias_); ++from) {
      const std::int64_t k = from % sk_, line = from / sk_, row = line % rows_;
      const bool away = c.rows && c.heads ? row / 100 != k / 100 : random() % 4 == 0;
      double& bias = bias_[from];
      if (lowest && row % 3 == 0)
        bias = *lowest;
      else
        bias = away ? -INFINITY : c.mask == 1 ? 0 : static_cast<float>(static_cast<T>(static_cast<float>(random() % 64) / 16.f));
      const std::int64_t to = (line / rows_ / heads_ * heads_ * rows_) * pitch_ + line / rows_ % heads_ * head_ + row * row_ + k;
      if (c.mask == 1) flags_[to] = bias == 0 ? 1 + to % 2 * 254 : 0;
      if (c.mask == 2) own_[to] = static_cast<T>(static_cast<float>(bias));
      if (c.mask == 3) floats_[to] = static_cast<float>(bias);
    }
  }

  /// What is added to a score; 0 or -inf for a boolean mask.
  double at(std::int64_t outer, std::int64_t head, std::int64_t row, std::int64_t k) const {
    return bias_[((outer % outer_ * heads_ + head % heads_) * rows_ + row % rows_) * sk_ + k];
  }

  /// Makes it the call's mask.
  void set(Arguments& a, const Case& c) const {
    if (c.mask == 0) return;
    const DType dtypes[] = {DType::boolean, a.dtype, DType::f32};
    const void* const data[] = {flags_.data(), own_.data(), floats_.data()};
    a.masked = true, a.mask_dtype = dtypes[c.mask - 1], a.mask.data = data[c.mask - 1];
    a.mask.column = 1, a.mask.row = c.rows ? row_ : 0;
    a.mask.group = c.heads ? head_ : 0, a.mask.batch[1] = c.group * a.mask.group;
    a.mask.batch[0] = c.shared ? 0 : heads_ * rows_ * pitch_;
  }

 private:
  std::int64_t places() const { return outer_ * heads_ * rows_ * pitch_; }
  std::int64_t sk_, heads_, rows_, outer_, pitch_, head_, row_;
  std::vector<double> bias_;
  Buffer<unsigned char> flags_;
  Buffer<T> own_;
  Buffer<float> floats_;
};

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
void check_last_batch(const Case& c, const Arguments& a, const Buffer<T>& output, const Buffer<float>& lse, std::int64_t splits,
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

}  // namespace xgemm::attention
