// Attention of sequences of different lengths (csrc/attention/tiles/sequence_tiles.h) against attention in double. Each line of
// the standard input is a case:
//   seed sm_count sequences key_heads group d dv packed page_rows columns appended max_q max_k left right softcap sinks invariant
//   poisoned lengths
// FAMILY_WIDE, with dv over 256 or d over 512: values are the keys' first columns where d is over 512.
// packed: 2 queries and keys, 1 queries only, 0 neither. page_rows: of a cache with `columns` entries of its table for each
// sequence; columns 0: no table. What no sequence may read is NaN, and a table's unused entries are out of bounds. poisoned: a
// sequence's values are NaN. lengths: 0 random, 1 the largest possible, 2 mostly short. invariant: a sequence alone, in other
// pages, gives the same bits in the batch-invariant mode.
#include "attention/mma/launch.h"
#include "attention/simt/launch.h"
#include "attention/tiles/instances.h"
#include "attention/tiles/problem.h"
#include "attention/wgmma/launch.h"
#include "device/numeric.cuh"
#include "programs/attention_case.h"

using namespace xgemm;
using namespace xgemm::attention;

namespace {

#ifdef FAMILY_SIMT
using T = float;
constexpr double kEpsilon = 0x1p-22;
#else
using T = half;
constexpr double kEpsilon = 0x1p-11;
#endif

#if defined(FAMILY_WGMMA) || defined(FAMILY_WIDE)
constexpr bool kNeedsKeys = true;  // there is no tensor map of nothing
#else
constexpr bool kNeedsKeys = false;
#endif

struct SequenceCase {
  std::uint64_t seed;
  int sm_count, sequences, key_heads, group, d, dv, packed, page_rows, columns, appended, max_q, max_k, left, right;
  double softcap;
  int sinks, invariant, poisoned, lengths;
  friend std::istream& operator>>(std::istream& in, SequenceCase& c) {
    return in >> c.seed >> c.sm_count >> c.sequences >> c.key_heads >> c.group >> c.d >> c.dv >> c.packed >> c.page_rows >>
           c.columns >> c.appended >> c.max_q >> c.max_k >> c.left >> c.right >> c.softcap >> c.sinks >> c.invariant >>
           c.poisoned >> c.lengths;
  }
};

struct Operands {
  std::vector<int> q_offsets, k_offsets, k_lengths, table;  // k_lengths: without appended keys
  std::vector<int> sq, sk;
  int q_rows = 0, k_rows = 0, pages = 0;
};

/// The lengths of all sequences; tables that give each sequence pages of its own, in random order.
Operands draw(const SequenceCase& c, std::mt19937_64& random) {
  Operands x;
  const auto length = [&](int most) {
    if (c.lengths == 1 || most == 0) return most;
    if (random() % 5 == 0) return 0;
    if (c.lengths == 2 && random() % 4 != 0) return static_cast<int>(random() % (std::min(most, 70) + 1));
    return static_cast<int>(random() % (most + 1));
  };
  x.q_offsets.push_back(0), x.k_offsets.push_back(0);
  for (int i = 0; i < c.sequences; ++i) {
    x.sq.push_back(c.packed > 0 ? length(c.max_q) : c.max_q);
    const int before = length(c.max_k - c.appended);
    x.k_lengths.push_back(before), x.sk.push_back(before + c.appended);
    x.q_offsets.push_back(x.q_offsets.back() + x.sq.back()), x.k_offsets.push_back(x.k_offsets.back() + x.sk.back());
  }
  x.q_rows = c.packed > 0 ? x.q_offsets.back() : c.max_q, x.k_rows = x.k_offsets.back();
  if (c.columns > 0) {
    x.pages = c.sequences * c.columns + 3;
    std::vector<int> order(x.pages);
    for (int i = 0; i < x.pages; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    const int poison[] = {-1, x.pages, 1 << 30, -(1 << 30)};
    for (int i = 0; i < c.sequences; ++i)
      for (int j = 0; j < c.columns; ++j)
        x.table.push_back(j * c.page_rows < x.sk[i] ? order[i * c.columns + j] : poison[random() % 4]);
  } else {
    x.pages = c.sequences;
  }
  return x;
}

template <class X>
Buffer<X> buffer_of(const std::vector<X>& x) {
  Buffer<X> b(x.size());
  std::copy(x.begin(), x.end(), b.data());
  return b;
}

/// Where key `row` of sequence i lies, in rows of all key heads.
std::int64_t row_of(const SequenceCase& c, const Operands& x, int i, int row) {
  if (c.packed == 2) return x.k_offsets[i] + row;
  const int page = c.columns > 0 ? x.table[i * c.columns + row / c.page_rows] : i;
  return std::int64_t{page} * c.page_rows + (c.columns > 0 ? row % c.page_rows : row);
}

/// Contiguous `rows` of all key heads where the sequences' keys lie; NaN elsewhere.
Buffer<T> cache_of(const SequenceCase& c, const Operands& x, const T* rows, int columns) {
  const std::int64_t size = std::int64_t{c.key_heads} * columns,
                     count = c.packed == 2 ? x.k_rows : std::int64_t{x.pages} * c.page_rows;
  Buffer<T> cache(count * size, static_cast<T>(NAN));
  for (int i = 0; i < c.sequences; ++i)
    for (int row = 0; row < x.sk[i]; ++row)
      std::copy_n(rows + (x.k_offsets[i] + row) * size, size, cache.data() + row_of(c, x, i, row) * size);
  return cache;
}

struct Outputs {
  Buffer<T> output;
  Buffer<float> lse;
  std::string tile;
};

/// Are the values the keys' first columns?
bool is_latent([[maybe_unused]] const SequenceCase& c) {
#ifdef FAMILY_WIDE
  return c.d > 512;
#else
  return false;
#endif
}

Outputs run(const SequenceCase& c, const Operands& x, const Buffer<T>& query, const Buffer<T>& key, const Buffer<T>& value,
            const Buffer<float>& sinks) {
  const int heads = c.key_heads * c.group;
  const std::int64_t rows = (c.packed > 0 ? 1 : c.sequences) * std::int64_t{heads} * x.q_rows;
  Outputs r{Buffer<T>(rows * c.dv, static_cast<T>(NAN)), Buffer<float>(rows, NAN), ""};
  const Buffer<int> q_offsets = buffer_of(x.q_offsets), k_offsets = buffer_of(x.k_offsets), k_lengths = buffer_of(x.k_lengths),
                    table = buffer_of(x.table);
  Arguments a = sizes_of({.outer = c.packed > 0 ? 1 : c.sequences,
                          .inner = c.key_heads,
                          .group = c.group,
                          .sq = x.q_rows,
                          .sk = c.packed == 2 ? x.k_rows : c.page_rows,
                          .d = c.d,
                          .dv = c.dv},
                         std::is_same_v<T, float> ? DType::f32 : DType::f16);
  set_scale(a, 1.7 / std::sqrt(c.d), c.softcap);
  a.last = a.sk;
  const auto operand = [&](const Buffer<T>& data, int row_heads, int columns, int length, int group) {
    Operand o{.data = data.data(), .row = std::int64_t{row_heads} * columns, .column = 1, .group = columns};
    o.batch[0] = length * o.row, o.batch[1] = std::int64_t{group} * columns, o.vector = columns % 8 == 0;
    return o;
  };
  a.query = operand(query, heads, c.d, x.q_rows, c.group);
  a.key = operand(key, c.key_heads, c.d, c.page_rows, 1);
  a.value = is_latent(c) ? a.key : operand(value, c.key_heads, c.dv, c.page_rows, 1);
  a.output = r.output.data(), a.lse = r.lse.data(), a.output_rows = OutputRows::of(x.q_rows, heads);
  if (c.sinks) a.sinks.data = sinks.data(), a.sinks_dtype = DType::f32, a.sinks.group = 1, a.sinks.batch[1] = c.group;

  Sequences s{.count = c.sequences};
  if (c.packed > 0) s.query_offsets = q_offsets.data();
  if (c.packed == 2)
    s.key_offsets = k_offsets.data(), s.key_rows = x.k_rows;
  else
    s.key_lengths = k_lengths.data(), s.key_rows = c.page_rows * std::max(c.columns, 1);
  if (c.columns > 0) s.table = table.data(), s.table_step = c.columns;
  s.page_rows = ShortDivider::of(c.page_rows), s.pages = x.pages, s.appended = c.appended;
  s.rows = x.q_rows, s.max_q = c.max_q, s.max_k = c.max_k, s.left = c.left, s.right = c.right;

  emulation::launch_options() = {.seed = c.seed, .concurrent_ctas = 3};
#ifdef FAMILY_SIMT
  const SimtPlan plan = plan_simt_sequences(a, s);
  Buffer<unsigned char> memory(plan.partial_bytes(a.total_rows()), 0xff);
  launch_simt(plan, simt_arguments(a, s), memory.data(), nullptr);
  r.tile = text("simt ", plan.tile);
#else
#ifdef FAMILY_WIDE
  if (c.key_heads == 1) divide_group(a, 1);
#endif
  Problem problem = sequence_problem(tile_problem(a), s);
  problem.sm_count = c.sm_count, problem.batch_invariant = c.invariant != 0;
#ifdef FAMILY_WGMMA
  const auto plan = plan_wgmma_sequences(problem, s);
  r.tile = "wgmma ";
#elif defined(FAMILY_WIDE)
  const auto plan = plan_wide_sequences(problem, s, is_latent(c));
  r.tile = is_latent(c) ? "latent " : "wide ";
#else
  const auto plan = plan_mma_sequences(problem, s, 160 << 10);
  r.tile = plan && plan->tiles.table.data() == kMmaTiles.data() ? "few " : "many ";
#endif
  require(plan.has_value(), "plan");
  Buffer<unsigned char> memory(plan->memory_bytes(), 0xff), counters(plan->tiles.counter_bytes(), 0);
#ifdef FAMILY_WGMMA
  require(launch_wgmma(*plan, a, s, counters.data(), memory.data(), nullptr), "launch");
  require_zeros(counters);
#elif defined(FAMILY_WIDE)
  require(launch_wide(*plan, a, s, memory.data(), nullptr), "launch");
#else
  launch_mma(*plan, a, s, memory.data(), nullptr);
#endif
  r.tile += text(plan->tiles.tile, plan->listed ? " listed" : " direct", plan->tiles.through_memory ? " split" : "");
#endif
  return r;
}

/// Moves the last c.appended rows of each sequence out of the cache, where NaN is left.
Buffer<T> take_new(const SequenceCase& c, const Operands& x, const Buffer<T>& cache, int columns) {
  const std::int64_t row_size = std::int64_t{c.key_heads} * columns;
  Buffer<T> rows(std::int64_t{c.sequences} * c.appended * row_size);
  for (int i = 0; i < c.sequences; ++i)
    for (int n = 0; n < c.appended; ++n) {
      const std::int64_t from = row_of(c, x, i, x.k_lengths[i] + n) * row_size;
      const std::int64_t to = (std::int64_t{i} * c.appended + n) * row_size;
      std::copy_n(cache.data() + from, row_size, rows.data() + to);
      std::fill_n(cache.data() + from, row_size, static_cast<T>(NAN));
    }
  return rows;
}

/// Appends them by the kernel, 16 bytes at a time where whole rows allow it.
void append(const SequenceCase& c, const Operands& x, const Buffer<T>& new_keys, const Buffer<T>& new_values,
            const Buffer<T>& key, const Buffer<T>& value) {
  const Buffer<int> lengths = buffer_of(x.k_lengths), table = buffer_of(x.table);
  AppendArguments a{};
  a.sequences = {.count = c.sequences, .key_lengths = lengths.data()};
  if (c.columns > 0) a.sequences.table = table.data(), a.sequences.table_step = c.columns;
  a.sequences.page_rows = ShortDivider::of(c.page_rows), a.sequences.pages = x.pages;
  a.sequences.key_rows = c.page_rows * std::max(c.columns, 1), a.sequences.appended = c.appended;
  a.heads = Divider::of(c.key_heads), a.appended = Divider::of(c.appended);
  const int width = c.d % 8 == 0 && c.dv % 8 == 0 ? 16 / static_cast<int>(sizeof(T)) : 1;
  const auto operand = [&](const Buffer<T>& from, const Buffer<T>& to, int columns) {
    const std::int64_t head = columns / width, row = c.key_heads * head;
    return AppendArguments::Operand{from.data(), to.data(), c.appended * row, row, head, 1, c.page_rows * row, row,
                                    head,        1,         Divider::of(head)};
  };
  a.operands[0] = operand(new_keys, key, c.d), a.operands[1] = operand(new_values, value, c.dv);
  for (int i : {0, 1}) a.words[i] = std::int64_t{c.sequences} * c.appended * c.key_heads * (i == 0 ? c.d : c.dv) / width;
  launch_append(a, width * static_cast<int>(sizeof(T)), nullptr);
}

void check(const SequenceCase& c) {
  std::mt19937_64 random(c.seed);
  const Operands x = draw(c, random);
  if (x.q_rows == 0) return;  // nothing to launch
  if (kNeedsKeys && c.packed == 2 && x.k_rows == 0) return;
  const int heads = c.key_heads * c.group;
  const std::int64_t q_rows = (c.packed > 0 ? 1 : c.sequences) * std::int64_t{x.q_rows}, row_size = c.key_heads * c.d,
                     value_size = c.key_heads * c.dv;
  const Buffer<T> query = random_numbers<T>(q_rows * heads * c.d, c.seed),
                  keys = random_numbers<T>(x.k_rows * row_size, c.seed + 1),
                  values = random_numbers<T>(x.k_rows * value_size, c.seed + 2);
  for (std::int64_t row = 0; is_latent(c) && row < std::int64_t{x.k_rows} * c.key_heads; ++row)
    std::copy_n(keys.data() + row * c.d, c.dv, values.data() + row * c.dv);
  const int bad = c.poisoned && !is_latent(c) ? static_cast<int>(random() % c.sequences) : -1;
  if (bad >= 0) std::fill_n(values.data() + x.k_offsets[bad] * value_size, x.sk[bad] * value_size, static_cast<T>(NAN));
  const Buffer<T> key = cache_of(c, x, keys.data(), c.d), value = cache_of(c, x, values.data(), c.dv);
  if (c.appended > 0) {
    const Buffer<T> new_keys = take_new(c, x, key, c.d), new_values = take_new(c, x, value, c.dv);
    append(c, x, new_keys, new_values, key, value);
  }
  const Buffer<float> sinks = random_numbers<float>(heads, c.seed + 3);
  const Outputs r = run(c, x, query, key, value, sinks);
  std::cout << r.tile << ": " << std::flush;

  const std::vector<double> all_queries = doubles(query), all_keys = doubles(keys), all_values = doubles(values);
  Expected expected(r.output.size()), lse(r.lse.size());
  AttentionRow exact(c.dv);
  for (int i = 0; i < c.sequences; ++i)
    for (int h = 0; h < heads; ++h)
      for (int n = 0; n < x.sq[i]; ++n) {
        const int sk = x.sk[i];
        const std::int64_t diagonal = std::int64_t{n} + sk - x.sq[i];
        const std::int64_t begin = c.left < 0 ? 0 : std::clamp<std::int64_t>(diagonal - c.left, 0, sk),
                           end = c.right < 0 ? sk : std::clamp<std::int64_t>(diagonal + c.right + 1, begin, sk);
        const std::int64_t row = c.packed > 0 ? x.q_offsets[i] + n : std::int64_t{i} * c.max_q + n;
        const std::int64_t of_lse = c.packed > 0 ? h * q_rows + row : (std::int64_t{i} * heads + h) * c.max_q + n;
        const std::int64_t key_head = std::int64_t{x.k_offsets[i]} * c.key_heads + h / c.group;
        exact.attend(all_queries.data() + (row * heads + h) * c.d, c.d,
                     {all_keys.data() + key_head * c.d, std::int64_t{c.key_heads} * c.d},
                     {all_values.data() + key_head * c.dv, std::int64_t{c.key_heads} * c.dv}, begin, end,
                     c.sinks ? sinks[h] : -INFINITY,
                     [&](std::int64_t, const Dot& product) { return capped(1.7 / std::sqrt(c.d) * product.sum, c.softcap); });
        lse.set(of_lse, exact.lse, 2e-5 * std::max(1., std::abs(exact.lse)));
        for (int y = 0; y < c.dv; ++y) {
          const std::int64_t at = (row * heads + h) * c.dv + y;
          if (i == bad && begin < end) {
            require(std::isnan(static_cast<float>(r.output[at])), "NaN of a sequence whose values are NaN");
            expected.skip(at);
          } else if (exact.sees_keys) {
            const double value = exact.output[y];
            expected.set(at, value, exact.magnitudes[y] * 1.5 * kEpsilon + std::abs(value) * kEpsilon + 0x1p-23);
          }
        }
      }
  expected.compare(r.output, "output");
  lse.compare(r.lse, "log-sum-exp");
  if (!c.invariant) return;

  // One sequence alone, in other pages.
  const int i = static_cast<int>(random() % c.sequences);
  SequenceCase one = c;
  one.sequences = 1, one.sm_count = c.sm_count + 1, one.seed = c.seed + 1;
  one.max_q = c.packed > 0 ? std::max(x.sq[i], 1) : c.max_q, one.max_k = std::max(x.sk[i], 1);
  Operands y;
  y.sq = {x.sq[i]}, y.sk = {x.sk[i]}, y.k_lengths = {x.k_lengths[i]};
  y.q_offsets = {0, y.sq[0]}, y.k_offsets = {0, y.sk[0]}, y.q_rows = c.packed > 0 ? y.sq[0] : c.max_q, y.k_rows = y.sk[0];
  if (y.q_rows == 0 || (kNeedsKeys && c.packed == 2 && y.k_rows == 0)) return;
  y.pages = c.columns > 0 ? c.columns : 1;
  for (int j = 0; j < c.columns; ++j) y.table.push_back(c.columns - 1 - j);
  const std::int64_t first_row = c.packed > 0 ? x.q_offsets[i] : std::int64_t{i} * c.max_q;
  Buffer<T> query_alone(std::int64_t{y.q_rows} * heads * c.d);
  std::copy_n(query.data() + first_row * heads * c.d, query_alone.size(), query_alone.data());
  const Buffer<T> key_alone = cache_of(one, y, keys.data() + x.k_offsets[i] * row_size, c.d),
                  value_alone = cache_of(one, y, values.data() + x.k_offsets[i] * value_size, c.dv);
  const Outputs alone = run(one, y, query_alone, key_alone, value_alone, sinks);
  if (i != bad)
    require(std::memcmp(alone.output.data(), r.output.data() + first_row * heads * c.dv, alone.output.size() * sizeof(T)) == 0,
            "equal bits of a sequence alone");
}

}  // namespace

int main() { return check_cases<SequenceCase>(check); }
