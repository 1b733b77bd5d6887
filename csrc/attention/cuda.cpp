// Attention on a GPU: the kernels' arguments, a plan, the launches.
#include "torch/cuda.h"

#include <algorithm>

#include "attention/arguments.h"
#include "attention/call.h"
#include "attention/decode/launch.h"
#include "attention/families.h"
#include "attention/fp16_split/launch.h"
#include "attention/mma/launch.h"
#include "attention/simt/launch.h"
#include "attention/wgmma/launch.h"
#include "attention/wgmma/tiles.h"
#include "attention/wgmma/wide.h"
#include "device/integer.h"

namespace xgemm::attention {
namespace {

/// `v` as a kernel operand, without batch dims; `strides` end with those of the last two dims.
Operand operand(const TensorView& v, ShapeRef strides) {
  return {.data = v.data, .row = strides[strides.size() - 2], .column = strides.back()};
}

constexpr std::size_t kTensorMapBatchDims = 2;  ///< that a launch of wgmma/ takes

/// Can TMA, or cp.async, read it (half precision)? It needs adjacent columns, whole vectors of them, and a base and strides of
/// multiples of 16 bytes. The last `apart` dims before the columns must not have stride 0 (batch dims may: wgmma/launch.cpp).
bool aligned(const TensorView& v, std::int64_t apart = 1) {
  bool result = v.stride(-1) == 1 && v.size(-1) % 8 == 0 && reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0;
  for (std::int64_t i = 0; i + 1 < v.dim(); ++i)
    result = result && (v.size(i) == 1 || (v.stride(i) % 8 == 0 && (v.stride(i) != 0 || i + 1 + apart < v.dim())));
  return result;
}

/// A copy whose columns are padded with zeros to whole vectors.
Tensor aligned_copy(const TensorView& v) {
  Shape shape(v.sizes.begin(), v.sizes.end());
  shape.back() = round_up(shape.back(), 8);
  Tensor copy = empty(shape, v.dtype, v);
  if (shape.back() != v.size(-1)) torch::stable::zero_(copy);
  Tensor columns = torch::stable::narrow(copy, -1, 0, v.size(-1));
  torch::stable::copy_(columns, *v.tensor);
  return copy;
}

/// False if no tensor-core kernel takes the call.
bool launch_on_tensor_cores(const CudaScope& scope, const Arguments& k, const Families& families) {
  const DeviceProperties& gpu = scope.properties();
  Problem problem = tile_problem(k);
  problem.table = kWgmmaTiles, problem.sm_count = gpu.sm_count, problem.batch_invariant = batch_invariant();
  std::optional<Plan> plan;
  if (families.mma) plan = plan_few_rows(problem, static_cast<std::int64_t>(gpu.smem_per_block));
  if (!plan && families.wgmma) plan = plan_tiles(problem);
  if (!plan && families.mma) plan = plan_many_rows(problem, static_cast<std::int64_t>(gpu.smem_per_block));
  if (!plan) return false;
  const MeetingPlace place = scope.meeting_place(plan->counter_bytes(), plan->memory_bytes());
  if (plan->table.data() == kWgmmaTiles.data()) return launch_wgmma(*plan, k, place.counters, place.partials, scope.stream());
  launch_mma(*plan, k, place.partials, scope.stream());
  return true;
}

/// fp32 by fp16 parts. Returns Arguments::failed, which lies in `memory`; null if the tensor-core kernel does not take the call.
const unsigned* launch_fp16_split(const CudaScope& scope, const Arguments& k, bool by_wgmma, Precision precision,
                                  const TensorView& like, std::optional<Tensor>& memory) {
  if (k.sk < kFewestSplitKeys) return nullptr;
  const int sm_count = scope.properties().sm_count;
  const std::optional<SplitPlan> plan =
      by_wgmma ? plan_fp16_split(k, sm_count, precision == Precision::highest ? 2 : 1) : plan_split_mma(k, sm_count);
  if (!plan) return nullptr;
  memory = workspace(plan->bytes, like);
  return launch_fp16_split(*plan, k, memory->data_ptr(), scope.stream());
}

/// A call as kernels take it. Batch dims beyond what they take are looped over on the host.
struct Described {
  Arguments arguments;
  std::vector<BatchDim> dims;  ///< outermost first; the last arguments.batch_dims are the kernels'
  std::size_t outer;           ///< the others
  std::int64_t batches = 1;    ///< of a launch
};

/// `most`: batch dims that a launch takes.
Described describe(const Call& a, std::size_t most) {
  std::array<Shape, kOperands> strides = strides_of(a);
  Described call;
  Arguments& k = call.arguments;
  k.query = operand(a.query, strides[0]);
  k.key = operand(a.key, strides[1]);
  k.value = operand(a.value, strides[2]);
  k.dtype = to_dtype(a.query.dtype);
  if (a.mask) k.mask = operand(*a.mask, strides[3]), k.mask_dtype = to_dtype(a.mask->dtype), k.masked = true;
  if (a.sinks) k.sinks = operand(*a.sinks, strides[4]), k.sinks_dtype = to_dtype(a.sinks->dtype);
  k.sq = static_cast<int>(a.sq), k.sk = static_cast<int>(a.sk), k.d = static_cast<int>(a.d), k.dv = static_cast<int>(a.dv);
  k.cap_scale = a.softcap == 0 ? 0 : a.scale / a.softcap, k.scale = k.cap_scale == 0 ? a.scale : a.softcap;
  k.first = a.first, k.last = a.last;

  // Query heads that share a key head become rows of one tile, which reads that head's keys and values once.
  Shape sizes = a.batch;
  if (a.key_group == a.value_group && a.key_group * a.sq <= kMaxLength) {
    k.group = static_cast<int>(a.key_group);
    if (k.group != 1) {
      const std::size_t heads = sizes.size() - 1;
      k.query.group = strides[0][heads], k.mask.group = strides[3][heads], k.sinks.group = strides[4][heads];
      sizes[heads] /= k.group;
      for (const std::size_t o : {0, 3, 4}) strides[o][heads] *= k.group;
    }
  } else {
    k.key_group = static_cast<std::uint32_t>(a.key_group), k.value_group = static_cast<std::uint32_t>(a.value_group);
  }
  k.output_rows = OutputRows::of(a.sq, a.heads_beside ? a.batch.back() : 0);
  // If key and value share heads differently, or the output's heads lie beside each other, the heads stay a separate last dim.
  call.dims = merged(sizes, strides, k.key_group != 1 || k.value_group != 1 || a.heads_beside);
  const std::size_t own = std::min(call.dims.size(), most);
  call.outer = call.dims.size() - own;
  k.batch_dims = static_cast<int>(own);
  const std::array<Operand*, kOperands> operands = {&k.query, &k.key, &k.value, &k.mask, &k.sinks};
  for (std::size_t i = 0; i < own; ++i) {
    const BatchDim& dim = call.dims[call.outer + i];
    call.batches *= dim.size;
    k.batch_sizes[i] = static_cast<std::uint32_t>(dim.size);
    for (std::size_t o = 0; o < operands.size(); ++o) operands[o]->batch[i] = dim.strides[o];
  }
  k.batches = static_cast<std::uint32_t>(call.batches);
  return call;
}

/// Calls launch() for every place in the outer batch dims, with the operands and results of that place.
template <class Launch>
void each_launch(const Call& a, Described& call, const Result& r, const Launch& launch) {
  Arguments& k = call.arguments;
  const std::array<Operand*, kOperands> operands = {&k.query, &k.key, &k.value, &k.mask, &k.sinks};
  const std::array<const void*, kOperands> bases = {k.query.data, k.key.data, k.value.data, k.mask.data, k.sinks.data};
  const auto item = static_cast<std::int64_t>(size_of(k.dtype)), sum_item = item == 8 ? item : 4;
  const std::int64_t rows = k.total_rows();
  std::int64_t done = 0;
  for_each(call.dims, call.outer, [&](const PerOperand& offset) {
    for (std::size_t o = 0; o < operands.size(); ++o)
      if (bases[o]) {
        const auto bytes = o < 3 ? item : static_cast<std::int64_t>(size_of(o == 3 ? k.mask_dtype : k.sinks_dtype));
        operands[o]->data = static_cast<const char*>(bases[o]) + offset[o] * bytes;
      }
    k.query.vector = vectorizable(k.query, k.batch_dims, a.d, item);
    k.key.vector = vectorizable(k.key, k.batch_dims, a.d, item);
    k.value.vector = vectorizable(k.value, k.batch_dims, a.dv, item);
    k.output = static_cast<char*>(r.output.data_ptr()) + done * a.dv * item;
    k.lse = r.lse ? static_cast<char*>(r.lse->data_ptr()) + done * sum_item : nullptr;
    launch();
    done += rows;
  });
}

/// CUDA cores, which take every call: decode/ few rows in fp32, else simt/.
class CudaCores {
  std::optional<DecodePlan> decode_;
  SimtPlan plan_;
  std::optional<Tensor> partials_;

 public:
  CudaCores(const Call& a, const Described& call, const DeviceProperties& gpu, bool may_decode) {
    const Arguments& k = call.arguments;
    const SimtProblem problem = {.fp64 = k.dtype == DType::f64,
                                 .batches = call.batches,
                                 .rows = k.group * a.sq,
                                 .key_begin = a.key_begin(),
                                 .key_end = a.key_end(),
                                 .d = a.d,
                                 .dv = a.dv,
                                 .sm_count = gpu.sm_count};
    if (k.dtype == DType::f32 && may_decode && !batch_invariant())
      decode_ = plan_decode(problem, a.sk, static_cast<std::int64_t>(gpu.smem_per_block));
    plan_ = plan_simt(problem);
    check_ctas(a.query.op, decode_ ? decode_->ctas : plan_.blocks);
  }
  bool decodes() const { return decode_.has_value(); }

  void launch(const Arguments& k, const TensorView& like, cudaStream_t stream) {
    const std::int64_t bytes = decode_ ? decode_->partial_bytes : plan_.partial_bytes(k.total_rows());
    if (bytes != 0 && !partials_)  // may be larger than the output, and tensor cores do not need it
      partials_ = workspace(bytes, like);
    void* const partials = partials_ ? partials_->data_ptr() : nullptr;
    decode_ ? launch_decode(*decode_, k, partials, stream) : launch_simt(plan_, {k}, partials, stream);
  }
};

/// The call on copies of operands that tensor cores cannot read; none if they can read all.
std::optional<Result> by_aligned_copies(const Call& a, bool want_lse) {
  const std::array<bool, 3> fit = {aligned(a.query, a.key_group == 1 ? 1 : 2), aligned(a.key), aligned(a.value)};
  if (fit[0] && fit[1] && fit[2]) return {};
  Call b = a;
  std::array<Tensor, 3> copies;
  TensorView* const views[] = {&b.query, &b.key, &b.value};
  for (std::size_t i = 0; i < copies.size(); ++i)
    if (!fit[i]) copies[i] = aligned_copy(*views[i]), *views[i] = view(a.query.op, views[i]->name, copies[i]);
  b.d = b.query.size(-1), b.dv = b.value.size(-1);
  Result r = attention_cuda(b, want_lse);
  if (b.dv == a.dv) return r;
  Result narrow = empty_result(a, false);
  torch::stable::copy_(narrow.output, torch::stable::narrow(r.output, -1, 0, a.dv));
  r.output = narrow.output;
  return r;
}

/// Nothing if the kernel for values of more than 256 columns does not take the call.
std::optional<Result> by_wide_kernel(const Call& a, bool want_lse) {
  const CudaScope scope(a.query);
  const bool half_type = a.query.dtype == ScalarType::Half || a.query.dtype == ScalarType::BFloat16;
  if (!half_type || !Families(scope.properties(), a.query.op).wgmma || a.mask) return {};
  const bool latent = is_latent(a.key, a.value);
  Result r = empty_result(a, want_lse);
  Described call = describe(a, kTensorMapBatchDims - 1);
  bool served = true;
  each_launch(a, call, r, [&] {
    Arguments k = call.arguments;
    divide_group(k, k.batch_dims);
    Problem problem = tile_problem(k);
    problem.sm_count = scope.properties().sm_count, problem.batch_invariant = batch_invariant();
    const std::optional<Plan> plan = plan_wide(problem, latent);
    if (!(served = served && plan)) return;
    const MeetingPlace place = scope.meeting_place(0, plan->memory_bytes());
    served = launch_wide(*plan, k, place.partials, scope.stream());
    scope.check_launch();
  });
  return served ? std::optional(std::move(r)) : std::nullopt;
}

}  // namespace

Result attention_cuda(const Call& a, bool want_lse) {
  if (a.dv > kValueColumns) {
    if (std::optional<Result> r = by_wide_kernel(a, want_lse)) return *r;
    return by_value_columns(a, want_lse, attention_cuda);
  }
  const CudaScope scope(a.query);
  const Families families(scope.properties(), a.query.op);
  const bool single = a.query.dtype == ScalarType::Float, half_type = !single && a.query.dtype != ScalarType::Double;
  const bool tensor_cores = half_type && (families.wgmma || families.mma);
  if (tensor_cores && a.d * a.dv * a.sk != 0)
    if (std::optional<Result> r = by_aligned_copies(a, want_lse)) return *r;
  Result r = empty_result(a, want_lse);
  if (a.batches() * a.sq == 0 || (a.dv == 0 && !want_lse)) return r;

  Described call = describe(a, tensor_cores && batch_invariant() ? kTensorMapBatchDims : kMaxBatchDims);
  Arguments& k = call.arguments;
  CudaCores cuda(a, call, scope.properties(), families.decode);
  const bool gains = families.wgmma || (families.mma && parts_gain(scope.properties()));
  // Whether the fp16 parts can represent a key head depends on all of its rows.
  const bool fp16_split = gains && single && a.precision != Precision::ieee && !batch_invariant() && !cuda.decodes();
  each_launch(a, call, r, [&] {
    std::optional<Tensor> parts;
    k.failed = fp16_split ? launch_fp16_split(scope, k, families.wgmma, a.precision, a.query, parts) : nullptr;
    if (!tensor_cores || !launch_on_tensor_cores(scope, k, families)) cuda.launch(k, a.query, scope.stream());
    scope.check_launch();
  });
  return r;
}

}  // namespace xgemm::attention
