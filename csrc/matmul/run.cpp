// A product on a GPU: its batch dims, a plan, memory, the launches.
#include <algorithm>
#include <array>
#include <cmath>  // for device/numeric.cuh
#include <span>

#include "device/environment.h"
#include "device/index_map.h"
#include "device/integer.h"
#include "device/numeric.cuh"
#include "matmul/call.h"
#include "matmul/launch.h"
#include "matmul/plan/plan.h"
#include "matmul/wgmma/launch.h"
#include "torch/cuda.h"

namespace xgemm::matmul {
namespace {

/// One batch dim. Strides: of a, b, c and residual.
using BatchDim = StridedDim<4>;

/// The batch dims; neighbours that every operand steps through as through one are merged.
std::vector<BatchDim> merge(const Call& call) {
  std::vector<BatchDim> dims;
  for (std::size_t d = 0; d < call.batch.size(); ++d)
    if (call.batch[d] != 1)
      append_merged(
          dims, BatchDim{call.batch[d],
                         {call.a[d], call.b[d], call.c.empty() ? 0 : call.c[d], call.residual.empty() ? 0 : call.residual[d]}});
  return dims;
}

/// Folds the rows of all batches into one matrix, if B is shared and every operand steps through the rows evenly.
void fold_rows(Problem& p, std::vector<BatchDim>& dims) {
  if (dims.empty()) return;
  const BatchDim d = dims.back();
  const auto [a, b, c, residual] = d.strides;
  if (b != 0) return;
  const auto even = [&](const Operand& x, std::int64_t step) { return !x.data || p.m == 1 || step == p.m * x.row_stride; };
  if (!even(p.a, a) || !even(p.c, c) || !even(p.residual, residual)) return;
  if (p.m == 1) p.a.row_stride = a, p.c.row_stride = c, p.residual.row_stride = residual;
  p.m *= d.size;
  dims.pop_back();
}

/// Plans of this thread's recent problems: planning costs several times a lookup. A plan depends on everything in a problem but
/// the addresses, of which only the alignment to 16 bytes counts.
class PlanCache {
 public:
  const Plan& find(const Problem& p, const DeviceProperties& gpu) {
    const Problem key = without_addresses(p);
    Entry* const set = &entries_[hash(key) % kSets * kWays];
    for (Entry* e = set; e < set + kWays; ++e)
      if (e->gpu == &gpu && e->key == key) return e->plan;
    Entry& oldest = set[next_++ % kWays];
    oldest = {&gpu, key, make_plan(p, gpu)};
    return oldest.plan;
  }

 private:
  static constexpr std::size_t kSets = 32, kWays = 4;
  struct Entry {
    const DeviceProperties* gpu = nullptr;  // one object per device
    Problem key{};
    Plan plan{};
  };

  static const void* alignment_of(const void* address) {
    const auto bits = reinterpret_cast<std::uintptr_t>(address);
    return reinterpret_cast<const void*>(bits ? 16 | bits % 16 : 0);
  }
  static Problem without_addresses(const Problem& p) {
    Problem key = p;
    for (Operand* x : {&key.a, &key.b, &key.c, &key.bias, &key.residual, &key.up, &key.bias_up}) x->data = alignment_of(x->data);
    key.factor = alignment_of(p.factor), key.prepared_b = alignment_of(p.prepared_b);
    key.out = nullptr;  // the allocator's: always aligned
    return key;
  }
  static std::size_t hash(const Problem& p) {
    std::uint64_t h = static_cast<std::uint64_t>(p.dtype);
    for (const std::int64_t x : {p.m, p.n, p.k, p.batches, p.a.row_stride, p.b.row_stride})
      h = (h ^ static_cast<std::uint64_t>(x)) * 0x9e3779b97f4a7c15u;
    return h >> 32;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(kSets * kWays);
  std::size_t next_ = 0;
};

/// Bytes that a plan needs: a workspace, zeros, partial sums.
struct Needs {
  std::int64_t workspace = 0, counters = 0, partials = 0;
};
Needs needs(const Candidate& plan) {
  return std::visit(
      [](const auto& x) {
        Needs bytes;
        if constexpr (requires { x.workspace_bytes; }) bytes.workspace = x.workspace_bytes;
        if constexpr (requires { x.counter_bytes; }) bytes.counters = x.counter_bytes;
        if constexpr (requires { x.partial_bytes; }) bytes.partials = x.partial_bytes;
        return bytes;
      },
      plan);
}

/// Launches a plan of any family. False: the driver rejected a tensor map, and nothing was launched.
struct Launch {
  const Problem& p;
  const CudaScope& scope;
  unsigned char* workspace;
  const MeetingPlace& place;  ///< zeros and memory of the stream's own
  cudaStream_t stream = scope.stream();
  void* counters = place.counters;
  float* partials = static_cast<float*>(place.partials);

  bool operator()(const SimtPlan& plan) const {
    (p.dtype == DType::f64 ? launch_simt<double> : launch_simt<float>)(p, plan, workspace, stream, {});
    return true;
  }
  bool operator()(const GemvPlan& plan) const {
    switch (plan.kernel) {
      case GemvKernel::gemv:
        (p.dtype == DType::f64 ? launch_gemv<double> : launch_gemv<float>)(p, plan, workspace, stream);
        break;
      case GemvKernel::dot: launch_dot(p, stream); break;
      case GemvKernel::sweep: launch_sweep(p, plan, stream); break;
      case GemvKernel::outputs: launch_outputs(p, plan, stream); break;
    }
    return true;
  }
  bool operator()(const Fp64Plan& plan) const { return launch_fp64(p, plan, workspace, stream), true; }
  bool operator()(const MmaPlan& plan) const {
    (p.dtype == DType::f16    ? launch_mma<half>
     : p.dtype == DType::bf16 ? launch_mma<bf16>
                              : launch_mma<float>)(p, plan, counters, partials, stream);
    return true;
  }
  bool operator()(const LargePlan& plan) const { return launch_large(p, plan, workspace, partials, stream), true; }
  bool operator()(const SlicedPlan& plan) const { return launch_sliced(p, plan, stream), true; }
  bool operator()(const Tf32Plan& plan) const { return launch_tf32(p, plan, workspace, counters, partials, stream); }
  bool operator()(const Bf16x3Plan& plan) const { return launch_bf16x3(p, plan, counters, partials, stream); }
  bool operator()(const WgmmaPlan& plan) const {
    return launch_wgmma_product(p, plan, workspace, counters, partials, scope.properties().sm_count, stream);
  }
};

/// Calls run(problem) for every place in the batch dims `outer`, with the operands and `out` of that place.
template <class Run>
void each_outer(Problem p, std::span<const BatchDim> outer, const Run& run) {
  if (outer.empty()) return run(p);
  const auto size = static_cast<std::int64_t>(size_of(p.dtype));
  std::int64_t inner = p.m * p.n * p.batches;  // elements of out
  for (const BatchDim& d : outer.subspan(1)) inner *= d.size;
  const std::array operands{&p.a, &p.b, &p.c, &p.residual};
  for (std::int64_t i = 0; i < outer[0].size; ++i) {
    each_outer(p, outer.subspan(1), run);
    for (std::size_t x = 0; x < operands.size(); ++x)
      if (const void*& data = operands[x]->data) data = static_cast<const char*>(data) + outer[0].strides[x] * size;
    p.out = static_cast<char*>(p.out) + inner * size;
  }
}

/// Runs a product by `plan`; false: as in `Launch`.
bool launch_plan(const TensorView& like, const Problem& p, const Plan& plan, const CudaScope& scope) {
  auto [bytes, counters, partials] = needs(plan.kernel);
  const std::int64_t wide = accumulator_bytes(p.dtype);
  // fp32 in parts: elements that they cannot represent are computed once more, when out is no longer the sums.
  const bool twice = std::holds_alternative<LargePlan>(plan.kernel);
  const bool enough = static_cast<std::int64_t>(size_of(p.dtype)) == wide && !twice;
  std::int64_t sums_at = 0;  // two products: the first one's unrounded sums go to out if wide enough, else to the workspace
  if (plan.up) {
    const auto up = needs(*plan.up);
    counters = std::max(counters, up.counters), partials = std::max(partials, up.partials);
    sums_at = round_up(std::max(bytes, up.workspace), 256);
    bytes = sums_at + (enough ? 0 : p.m * p.n * p.batches * wide);
  }
  std::optional<Tensor> space;
  const MeetingPlace place = scope.meeting_place(counters, partials);
  if (bytes > 0) space = workspace(bytes, like);
  auto* const memory = space ? static_cast<unsigned char*>(space->data_ptr()) : nullptr;
  const auto launch = [&](const Problem& q, const Candidate& kernel) {
    const bool launched = std::visit(Launch{q, scope, memory, place}, kernel);
    scope.check_launch();
    return launched;
  };
  if (!plan.up) return launch(p, plan.kernel);
  void* const sums = enough ? p.out : memory + sums_at;
  return launch(up_product(p, sums), *plan.up) && launch(gate_product(p, sums), plan.kernel);
}

/// XGEMM_MATMUL_PLAN: a kernel's name, for tuning (docs/matmul.md).
std::string_view forced_plan(const char* op) {
  const std::string_view forced = environment("XGEMM_MATMUL_PLAN");
  if (!forced.empty() && !is_plan_name(forced))
    fail(op, "expected XGEMM_MATMUL_PLAN to be one of ", plan_names(), ", got ", forced);
  return forced;
}

}  // namespace

Tensor run(Call& call) {
  CudaScope scope(call.like);
  Problem& p = call.problem;
  const auto result = [&] { return call.out ? *call.out : empty(call.out_shape, call.like.dtype, call.like); };
  std::int64_t batches = 1;
  for (const std::int64_t size : call.batch) batches *= size;
  if (batches * p.m * p.n == 0) return result();

  std::vector<BatchDim> dims = merge(call);
  fold_rows(p, dims);
  const std::size_t own = std::min<std::size_t>(dims.size(), kMaxBatchDims), outer = dims.size() - own;
  p.batch_dims = static_cast<int>(own);
  for (std::size_t i = 0; i < own; ++i) {
    const BatchDim& d = dims[outer + i];
    p.batch[i] = d.size;
    p.batches *= d.size;
    const std::array operands{&p.a, &p.b, &p.c, &p.residual};
    for (std::size_t x = 0; x < operands.size(); ++x) operands[x]->batch_stride[i] = d.strides[x];
  }
  if (is_half(p.dtype) && std::max({p.m, p.n, p.batches}) > kMostLines)
    fail(call.like.op, "expected fewer than 2^31 - 1024 rows, columns and products of half precision, got ", p.m, " x ", p.n,
         " and ", p.batches, " products");
  p.batch_invariant = batch_invariant();
  const std::string_view forced = forced_plan(call.like.op);
  const DeviceProperties& gpu = scope.properties();
  thread_local PlanCache cache;
  const Plan* const whole = outer == 0 && forced.empty() ? &cache.find(p, gpu) : nullptr;
  if (whole && whole->slower_than_torch && call.unless_slower && !p.batch_invariant) return {};
  Tensor out = result();
  p.out = out.data_ptr();
  each_outer(p, std::span(dims).first(outer), [&](const Problem& product) {
    const auto launched_by = [&](const Plan& plan) { return launch_plan(call.like, product, plan, scope); };
    if (!(whole            ? launched_by(*whole)
          : forced.empty() ? launched_by(cache.find(product, gpu))
                           : launched_by(make_plan(product, gpu, forced))))
      launched_by(make_plan(product, gpu, is_half(product.dtype) ? "large" : "simt"));  // kernels that take any strides
  });
  return out;
}

std::int64_t prepared_bytes(const TensorView& weight, Precision precision) {
  const int parts = split_parts(precision);
  if (weight.dtype != ScalarType::Float || parts == 0 || weight.numel() == 0) return 0;
  const DeviceProperties& gpu = device_properties(weight.device_index);
  if (!splits_gain(machine_of(gpu), parts)) return 0;
  return prepared_layout(weight.size(0), weight.size(1), parts).bytes + std::int64_t{sizeof(FailedLines)};
}

void run_prepare(const Problem& p, Tensor& prepared, const TensorView& weight) {
  CudaScope scope(weight);
  torch::stable::zero_(prepared);  // the padding of parts, too: the same weight gives the same bytes
  launch_prepare(p, split_parts(p.precision), prepared.data_ptr(), scope.stream());
  scope.check_launch();
}

}  // namespace xgemm::matmul
