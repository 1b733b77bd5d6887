// Attention of sequences of different lengths on a GPU: the kernels' arguments, a plan, the launches.
#include <algorithm>

#include "attention/families.h"
#include "attention/mma/launch.h"
#include "attention/sequences.h"
#include "attention/simt/launch.h"
#include "attention/tiles/instances.h"
#include "attention/tiles/problem.h"
#include "attention/wgmma/launch.h"
#include "attention/wgmma/wide.h"
#include "device/integer.h"
#include "torch/cuda.h"

namespace xgemm::attention {
namespace {

/// A query, keys or values: batches are sequences (keys and values: pages) unless packed. Strides of dims of size 1 are 0.
Operand operand(const TensorView& v, bool packed, std::int64_t group) {
  const auto stride = [&](std::int64_t dim) { return v.size(dim) > 1 ? v.stride(dim) : 0; };
  Operand x{.data = v.data, .row = stride(-3), .column = stride(-1), .group = stride(-2)};
  if (v.size(-1) <= 1) x.column = 1;
  x.batch[0] = packed ? 0 : stride(0), x.batch[1] = group * stride(-2);
  return x;
}

const int* numbers(const std::optional<TensorView>& v) { return v ? static_cast<const int*>(v->data) : nullptr; }

Sequences sequences_of(const SequenceCall& c) {
  Sequences s{.count = static_cast<int>(c.sequences)};
  s.query_offsets = numbers(c.query_offsets), s.key_offsets = numbers(c.key_offsets);
  s.key_lengths = numbers(c.key_lengths), s.table = numbers(c.table);
  if (c.table) s.table_step = c.table->stride(0);
  std::int64_t key_rows = c.key.size(0);
  s.pages = s.count;  // packed keys: no table leads anywhere
  if (!c.key_offsets) {
    key_rows = c.key.size(1) * (c.table ? c.table->size(1) : 1);
    s.page_rows = ShortDivider::of(std::max<std::int64_t>(c.key.size(1), 1)), s.pages = static_cast<int>(c.key.size(0));
  }
  s.key_rows = static_cast<int>(std::min(key_rows, kMaxLength));
  if (c.new_key) s.appended = static_cast<int>(c.new_key->size(1));
  s.rows = static_cast<int>(c.query_offsets ? c.query.size(0) : c.max_q);
  s.max_q = static_cast<int>(c.max_q), s.max_k = static_cast<int>(std::min<std::int64_t>(c.max_k, s.key_rows));
  const auto limit = [](std::int64_t window) { return static_cast<int>(std::clamp<std::int64_t>(window, -1, kMaxLength)); };
  s.left = limit(c.left), s.right = limit(c.right);
  return s;
}

void append(const SequenceCall& c, const Sequences& s, std::int64_t item, cudaStream_t stream) {
  AppendArguments a{};
  a.sequences = s;
  a.heads = Divider::of(std::max<std::int64_t>(c.key_heads, 1)), a.appended = Divider::of(std::max(s.appended, 1));
  const std::array<std::array<const TensorView*, 2>, 2> views = {{{&*c.new_key, &c.key}, {&*c.new_value, &c.value}}};
  const auto in_vectors = [&](const TensorView& v) {
    const Operand x = operand(v, false, 1);
    return x.column == 1 && vectorizable(x, 2, v.size(-1), item) && v.size(-1) * item % 16 == 0;
  };
  const bool vectors = std::ranges::all_of(views, [&](const auto& pair) { return in_vectors(*pair[0]) && in_vectors(*pair[1]); });
  const std::int64_t width = vectors ? 16 / item : 1;  // elements of a word
  for (std::size_t i = 0; i < 2; ++i) {
    const Operand from = operand(*views[i][0], false, 1), to = operand(*views[i][1], false, 1);
    const std::int64_t columns = views[i][0]->size(-1) / width;
    const auto column = [&](const Operand& x) { return vectors ? 1 : x.column; };
    AppendArguments::Operand& x = a.operands[i];
    x.from = from.data, x.to = const_cast<void*>(to.data), x.columns = Divider::of(std::max<std::int64_t>(columns, 1));
    x.from_outer = from.batch[0] / width, x.from_row = from.row / width, x.from_head = from.batch[1] / width;
    x.to_outer = to.batch[0] / width, x.to_row = to.row / width, x.to_head = to.batch[1] / width;
    x.from_column = column(from), x.to_column = column(to);
    a.words[i] = c.sequences * s.appended * c.key_heads * columns;
  }
  if (a.words[0] + a.words[1] > 0) launch_append(a, static_cast<int>(width * item), stream);
}

Arguments arguments_of(const SequenceCall& c, const Sequences& s, const Result& r, std::int64_t item) {
  const bool packed = c.query_offsets.has_value();
  const std::int64_t group = c.heads / c.key_heads;
  Arguments a;
  a.query = operand(c.query, packed, group);
  a.key = operand(c.key, c.key_offsets.has_value(), 1), a.value = operand(c.value, c.key_offsets.has_value(), 1);
  a.query.vector = vectorizable(a.query, 2, c.d, item), a.key.vector = vectorizable(a.key, 2, c.d, item),
  a.value.vector = vectorizable(a.value, 2, c.dv, item);
  a.dtype = to_dtype(c.query.dtype);
  if (c.sinks) {
    a.sinks = {.data = c.sinks->data, .group = c.sinks->stride(0)};
    a.sinks.batch[1] = group * c.sinks->stride(0), a.sinks_dtype = to_dtype(c.sinks->dtype);
  }
  a.batch_dims = 2;
  a.batch_sizes[0] = static_cast<std::uint32_t>(packed ? 1 : c.sequences),
  a.batch_sizes[1] = static_cast<std::uint32_t>(c.key_heads);
  a.batches = a.batch_sizes[0] * a.batch_sizes[1];
  a.group = static_cast<int>(group), a.sq = s.rows, a.d = static_cast<int>(c.d), a.dv = static_cast<int>(c.dv);
  a.sk = c.key_offsets ? s.key_rows : static_cast<int>(c.key.size(1));
  a.last = a.sk;
  a.cap_scale = c.softcap == 0 ? 0 : c.scale / c.softcap, a.scale = c.softcap == 0 ? c.scale : c.softcap;
  a.output = r.output.data_ptr(), a.lse = r.lse ? r.lse->data_ptr() : nullptr;
  a.output_rows = OutputRows::of(s.rows, c.heads);
  return a;
}

/// Heads of more than kValueColumns columns. False if wide.cu does not take the call.
bool launch_wide_heads(const CudaScope& scope, Arguments a, const Sequences& s, bool latent) {
  if (a.batch_sizes[1] == 1)
    divide_group(a, 1);
  else if (a.group > kWideTiles[0].rows())
    return false;
  Problem problem = sequence_problem(tile_problem(a), s);
  problem.sm_count = scope.properties().sm_count, problem.batch_invariant = batch_invariant();
  const std::optional<SequencePlan> plan = plan_wide_sequences(problem, s, latent);
  if (!plan) return false;
  const MeetingPlace place = scope.meeting_place(0, plan->memory_bytes());
  return launch_wide(*plan, a, s, place.partials, scope.stream());
}

/// False if no tensor-core kernel takes the call.
bool launch_on_tensor_cores(const CudaScope& scope, const Arguments& a, const Sequences& s, bool latent,
                            const Families& families) {
  if (std::max(a.d, a.dv) > kValueColumns) return families.wgmma && launch_wide_heads(scope, a, s, latent);
  const DeviceProperties& gpu = scope.properties();
  Problem problem = sequence_problem(tile_problem(a), s);
  problem.sm_count = gpu.sm_count, problem.batch_invariant = batch_invariant();
  const auto launch = [&](const SequencePlan& plan, bool wgmma) {
    const MeetingPlace place = scope.meeting_place(plan.tiles.counter_bytes(), plan.memory_bytes());
    if (wgmma) return launch_wgmma(plan, a, s, place.counters, place.partials, scope.stream());
    launch_mma(plan, a, s, place.partials, scope.stream());
    return true;
  };
  const bool few = problem.sq * problem.group <= kMmaRows && !problem.batch_invariant;
  // In batch-invariant mode packed keys have the order of additions of pages, which wgmma/ does not read.
  if (families.wgmma && !few && !problem.batch_invariant)
    if (const std::optional<SequencePlan> plan = plan_wgmma_sequences(problem, s); plan && launch(*plan, true)) return true;
  if (!families.mma) return false;
  const std::optional<SequencePlan> plan = plan_mma_sequences(problem, s, static_cast<std::int64_t>(gpu.smem_per_block));
  return plan && launch(*plan, false);
}

void launch_on_cuda_cores(const CudaScope& scope, const Arguments& a, const Sequences& s, const TensorView& like) {
  const SimtPlan plan = plan_simt_sequences(a, s);
  check_ctas(like.op, plan.blocks);
  std::optional<Tensor> memory;
  if (plan.partials > 0) memory = workspace(plan.partial_bytes(a.total_rows()), like);
  launch_simt(plan, simt_arguments(a, s), memory ? memory->data_ptr() : nullptr, scope.stream());
}

/// The call without its append; nothing if only kernels are left that take fewer columns of values.
std::optional<Result> attend(const SequenceCall& c, const Sequences& s, bool want_lse, const CudaScope& scope,
                             const Families& families, std::int64_t item) {
  Result r = empty_result(c, want_lse);
  const Arguments a = arguments_of(c, s, r, item);
  const bool half_type = item == 2 && c.d * c.dv > 0;
  if (!(half_type && launch_on_tensor_cores(scope, a, s, is_latent(c.key, c.value), families))) {
    if (c.dv > kValueColumns) return {};
    launch_on_cuda_cores(scope, a, s, c.query);
  }
  scope.check_launch();
  return r;
}

}  // namespace

Result sequences_cuda(const SequenceCall& c, bool want_lse) {
  const CudaScope scope(c.query);
  const Families families(scope.properties(), c.query.op);
  const auto item = static_cast<std::int64_t>(size_of(to_dtype(c.query.dtype)));
  const Sequences s = sequences_of(c);
  if (c.new_key && c.sequences * s.appended > 0) append(c, s, item, scope.stream()), scope.check_launch();
  if (c.sequences * c.max_q * c.heads == 0 || (c.dv == 0 && !want_lse)) return empty_result(c, want_lse);
  if (std::optional<Result> r = attend(c, s, want_lse, scope, families, item)) return *r;
  return by_value_columns(
      c, want_lse, [&](const SequenceCall& call, bool with_lse) { return *attend(call, s, with_lse, scope, families, item); });
}

}  // namespace xgemm::attention
