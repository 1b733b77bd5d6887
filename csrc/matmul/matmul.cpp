// matmul, addmm, linear, gated_linear: torch's semantics -> Problem -> Plan -> launch; on the CPU the same through ATen.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "matmul/precision.h"
#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "device/integer.h"
#include "matmul/bf16x3/launch.h"
#include "matmul/fp64_mma/launch.h"
#include "matmul/gemv/launch.h"
#include "matmul/mma/launch.h"
#include "matmul/plan.h"
#include "matmul/simt/launch.h"
#include "matmul/tf32/launch.h"
#include "matmul/wgmma/launch.h"
#include "torch/cuda.h"
#endif

namespace xgemm::matmul {
namespace {

Activation parse_activation(const char* op, const std::string& s) {
  if (s == "none") return Activation::none;
  if (s == "relu") return Activation::relu;
  if (s == "gelu") return Activation::gelu;
  if (s == "gelu_tanh") return Activation::gelu_tanh;
  if (s == "silu") return Activation::silu;
  fail(op, "expected activation to be none, relu, gelu, gelu_tanh or silu, got ", s);
}

/// Device and dtype of every tensor argument against the first's.
void check_like(const TensorView& first, const TensorView& other) {
  check_same_device(first, other);
  check_same_dtype(first, other);
}

/// A checked call: what the CPU and the CUDA path both start from. Operands are matrices with the output's batch dims.
struct Call {
  TensorView like;                  ///< gives the output's dtype and device
  Shape batch{};                    ///< the output's batch dims
  Shape out_shape{};                ///< what the caller gets
  Problem problem{};                ///< sizes, scalars and the operands' pointers and matrix strides
  Shape a{}, b{}, c{}, residual{};  ///< the operands' batch strides, one a batch dim
};

/// `x` as a matrix operand: its last two dims given as strides, and the batch strides under `batch`.
Operand operand(const TensorView& x, std::int64_t row_stride, std::int64_t col_stride) {
  return {.data = x.data, .row_stride = row_stride, .col_stride = col_stride};
}

/// An operand that broadcasts to the whole output (addmm's input, linear's residual): last two dims and batch strides.
Operand broadcast_operand(const TensorView& x, ShapeRef out_shape, Shape& strides) {
  const char* const op = x.op;
  bool ok = x.sizes.size() <= out_shape.size();
  for (std::size_t i = 0; ok && i < x.sizes.size(); ++i) {
    const std::int64_t size = x.sizes[x.sizes.size() - 1 - i];
    ok = size == 1 || size == out_shape[out_shape.size() - 1 - i];
  }
  check(ok, op, "expected ", x.name, " to broadcast to the output's shape ", to_string(out_shape), ", got ", to_string(x.sizes));
  Shape all = broadcast_strides(x.sizes, x.strides, out_shape);
  const std::int64_t col = all.empty() ? 0 : all.back();
  if (!all.empty()) all.pop_back();
  const std::int64_t row = all.empty() ? 0 : all.back();
  if (!all.empty()) all.pop_back();
  strides = std::move(all);
  return operand(x, row, col);
}

#ifdef XGEMM_WITH_CUDA

void launch(const Problem& p, const Fp64Plan& plan, void* workspace, cudaStream_t stream) {
  launch_fp64(p, plan, workspace, stream);
}

void launch(const Problem& p, const Plan& plan, void* workspace, cudaStream_t stream) {
  switch (p.dtype) {
    case DType::f32: return launch_simt<float>(p, plan, workspace, stream);
    case DType::f16: return launch_simt<half>(p, plan, workspace, stream);
    case DType::bf16: return launch_simt<bf16>(p, plan, workspace, stream);
    default: return launch_simt<double>(p, plan, workspace, stream);
  }
}

Shape batch_strides(const TensorView& x, std::size_t matrix_dims, ShapeRef batch) {
  const std::size_t dims = x.sizes.size() > matrix_dims ? x.sizes.size() - matrix_dims : 0;
  return broadcast_strides(x.sizes.first(dims), x.strides.first(dims), batch);
}

/// One batch dim of all operands.
struct BatchDim {
  std::int64_t size, a, b, c, residual;
};

/// Merges neighbouring dims where every operand steps through both as through one.
std::vector<BatchDim> merge(const Call& call) {
  std::vector<BatchDim> dims;
  for (std::size_t d = 0; d < call.batch.size(); ++d) {
    if (call.batch[d] == 1) continue;
    const BatchDim now{call.batch[d], call.a[d], call.b[d], call.c.empty() ? 0 : call.c[d],
                       call.residual.empty() ? 0 : call.residual[d]};
    if (!dims.empty()) {
      BatchDim& before = dims.back();
      if (before.a == now.a * now.size && before.b == now.b * now.size && before.c == now.c * now.size &&
          before.residual == now.residual * now.size) {
        before = {before.size * now.size, now.a, now.b, now.c, now.residual};
        continue;
      }
    }
    dims.push_back(now);
  }
  return dims;
}

/// Rows of all batches as one matrix, where B is shared and every operand steps through the rows evenly.
void fold_rows(Problem& p, std::vector<BatchDim>& dims) {
  if (dims.empty() || dims.back().b != 0) return;
  const BatchDim d = dims.back();
  const auto even = [&](const Operand& x, std::int64_t step) { return !x.data || p.m == 1 || step == p.m * x.row_stride; };
  if (!even(p.a, d.a) || !even(p.c, d.c) || !even(p.residual, d.residual)) return;
  if (p.m == 1) p.a.row_stride = d.a, p.c.row_stride = d.c, p.residual.row_stride = d.residual;
  p.m *= d.size;
  dims.pop_back();
}

/// The plans of problems that this thread has had before: planning costs several times what finding them does. A plan depends on
/// everything in a problem but the addresses, of which only the alignment to 16 bytes counts.
class PlanCache {
 public:
  const Plans& find(const Problem& p, const DeviceProperties& gpu) {
    const Problem key = without_addresses(p);
    Entry* const set = &entries_[hash(key) % kSets * kWays];
    for (Entry* e = set; e < set + kWays; ++e)
      if (e->gpu == &gpu && e->key == key) return e->plans;
    Entry& oldest = set[next_++ % kWays];
    oldest = {&gpu, key, make_plans(p, gpu, {})};
    return oldest.plans;
  }

 private:
  static constexpr std::size_t kSets = 32, kWays = 4;
  struct Entry {
    const DeviceProperties* gpu = nullptr;  // one object a device
    Problem key{};
    Plans plans{};
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

/// Bytes of an element that the kernels sum in.
constexpr std::int64_t accumulator_bytes(DType t) { return t == DType::f64 ? 8 : 4; }

/// Launches dims.size() - kMaxBatchDims nested host loops around the kernels' own batch dims.
template <class Plan>
void run(Problem p, std::span<const BatchDim> dims, const Plan& plan, void* workspace, const CudaScope& scope) {
  const auto advance = [size = size_of(p.dtype)](Operand& x, std::int64_t step) {
    if (x.data) x.data = static_cast<const char*>(x.data) + step * static_cast<std::int64_t>(size);
  };
  if (dims.size() > kMaxBatchDims) {
    std::int64_t inner = p.m * p.n;
    for (const BatchDim& d : dims.subspan(1)) inner *= d.size;
    const std::int64_t wide = accumulator_bytes(p.dtype), out = p.wide_out ? wide : static_cast<std::int64_t>(size_of(p.dtype));
    for (std::int64_t i = 0; i < dims[0].size; ++i) {
      run(p, dims.subspan(1), plan, workspace, scope);
      advance(p.a, dims[0].a);
      advance(p.b, dims[0].b);
      advance(p.c, dims[0].c);
      advance(p.residual, dims[0].residual);
      p.out = static_cast<char*>(p.out) + inner * out;
      if (p.factor) p.factor = static_cast<const char*>(p.factor) + inner * wide;
    }
    return;
  }
  launch(p, plan, workspace, scope.stream());
  scope.check_launch();
}

Tensor run_cuda(Call& call) {
  CudaScope scope(call.like);
  Problem& p = call.problem;
  Tensor out = empty(call.out_shape, call.like.dtype, call.like);
  p.out = view(call.like.op, "out", out).data;
  std::int64_t batches = 1;
  for (const std::int64_t size : call.batch) batches *= size;
  const std::int64_t elements = batches * p.m * p.n;
  if (elements == 0) return out;

  std::vector<BatchDim> dims = merge(call);
  fold_rows(p, dims);
  const std::size_t own = std::min<std::size_t>(dims.size(), kMaxBatchDims), outer = dims.size() - own;
  p.batch_dims = static_cast<int>(own);
  for (std::size_t i = 0; i < own; ++i) {
    const BatchDim& d = dims[outer + i];
    p.batch[i] = d.size;
    p.batches *= d.size;
    p.a.batch_stride[i] = d.a;
    p.b.batch_stride[i] = d.b;
    p.c.batch_stride[i] = d.c;
    p.residual.batch_stride[i] = d.residual;
  }
  p.batch_invariant = std::getenv("XGEMM_BATCH_INVARIANT") != nullptr;
  const char* const wanted = std::getenv("XGEMM_MATMUL_PLAN");  // a kernel's name, for tuning (docs/matmul.md)
  const std::string_view forced = wanted ? wanted : "";
  Plans forced_plans;
  std::optional<Tensor> space;
  const auto allocate = [&](std::int64_t bytes) -> void* {
    if (bytes == 0) return nullptr;
    space = workspace(static_cast<std::size_t>(bytes), call.like);
    return view(call.like.op, "workspace", *space).data;
  };
  thread_local PlanCache cache;
  const Plans& plans =
      forced.empty() ? cache.find(p, scope.properties()) : (forced_plans = make_plans(p, scope.properties(), forced));
  if (outer == 0 && plans.mma) {
    (p.dtype == DType::f16 ? launch_mma_half : launch_mma_bf16)(p, *plans.mma, scope.stream());
    scope.check_launch();
    return out;
  }
  if (outer == 0 && plans.small) {
    launch_small(p, *plans.small, scope.stream());
    scope.check_launch();
    return out;
  }
  if (outer == 0 && plans.tf32) {
    const Tf32Plan& plan = *plans.tf32;
    const MeetingPlace place =
        scope.meeting_place(static_cast<std::size_t>(plan.counter_bytes), static_cast<std::size_t>(plan.partial_bytes));
    const bool launched =
        launch_tf32(p, plan, static_cast<unsigned char*>(allocate(plan.workspace_bytes)), static_cast<unsigned*>(place.counters),
                    static_cast<float*>(place.partials), scope.stream());
    scope.check_launch();
    if (launched) return out;
  }
  if (outer == 0 && plans.direct) {
    const DirectPlan& plan = *plans.direct;
    const MeetingPlace place =
        scope.meeting_place(static_cast<std::size_t>(plan.counter_bytes()), static_cast<std::size_t>(plan.partial_bytes));
    const bool launched =
        launch_direct(plan.mirrored ? mirror(p) : p, plan, place.counters, static_cast<float*>(place.partials), scope.stream());
    scope.check_launch();
    if (launched) return out;
  }
  if (outer == 0 && plans.tensor) {
    const TensorPlan& plan = *plans.tensor;
    const MeetingPlace place =
        scope.meeting_place(static_cast<std::size_t>(plan.counter_bytes), static_cast<std::size_t>(plan.partial_bytes));
    const bool launched = launch_tensor(p, plan, allocate(plan.workspace_bytes), place.counters,
                                        static_cast<float*>(place.partials), scope.properties().sm_count, scope.stream());
    scope.check_launch();
    if (launched) return out;
  }
  if (!p.gated) {
    if (plans.fp64)
      run(p, dims, *plans.fp64, allocate(plans.fp64->workspace_bytes), scope);
    else
      run(p, dims, plans.simt, allocate(plans.simt.workspace_bytes), scope);
    return out;
  }
  // Two products: the first one's sums wait, unrounded, in out where it is wide enough, else in the workspace.
  if (plans.fp64) {
    void* const memory = allocate(plans.fp64->workspace_bytes);
    run(up_product(p, p.out), dims, *plans.fp64, memory, scope);
    run(gate_product(p, p.out), dims, *plans.fp64, memory, scope);
    return out;
  }
  const std::int64_t wide = accumulator_bytes(p.dtype),
                     partial = (std::max(plans.simt.workspace_bytes, plans.simt_up.workspace_bytes) + 255) / 256 * 256;
  const bool enough = static_cast<std::int64_t>(size_of(p.dtype)) == wide;
  char* const memory = static_cast<char*>(allocate(partial + (enough ? 0 : elements * wide)));
  void* const sums = enough ? p.out : memory + partial;
  run(up_product(p, sums), dims, plans.simt_up, memory, scope);
  run(gate_product(p, sums), dims, plans.simt, memory, scope);
  return out;
}

#endif  // XGEMM_WITH_CUDA

/// Bytes that prepare() makes of a weight; none where no product would use them: on the CPU, on GPUs without wgmma, of half
/// precision, of "ieee".
std::int64_t prepared_bytes([[maybe_unused]] const TensorView& weight, [[maybe_unused]] Precision precision) {
#ifdef XGEMM_WITH_CUDA
  if (weight.cuda && weight.dtype == ScalarType::Float && device_properties(weight.device_index).major == 9 &&
      split_parts(precision) > 0 && weight.numel() > 0)
    return prepared_layout(weight.size(0), weight.size(1), split_parts(precision)).bytes + std::int64_t{sizeof(FailedLines)};
#endif
  return 0;
}

// ---- CPU: ATen, in fp32 for the half types, rounded once at the end, as the kernels do ----

/// What operands of `dtype` are multiplied in: fp64 in place of fp32 where ATen would round to fewer bits than `precision`
/// allows.
ScalarType arithmetic(ScalarType dtype, Precision precision) {
  if (dtype == ScalarType::Double) return dtype;
  const Rounding allowed = precision == Precision::medium ? Rounding::bf16
                           : precision == Precision::high ? Rounding::tf32
                                                          : Rounding::none;
  return allowed < Rounding::bf16 && product_rounding() > allowed ? ScalarType::Double : ScalarType::Float;
}

/// Rows of A in all batches.
std::int64_t all_rows(const Call& call) {
  std::int64_t rows = call.problem.m;
  for (const std::int64_t size : call.batch) rows *= size;
  return rows;
}

/// Whether ATen multiplies operands of `half` as they are no slower than copies of them in fp32; it rounds once in both cases.
/// Without units for the type that is so for small products, and for a row times dense columns (`k_step` 1), by dot products.
bool multiplies_as_is(ScalarType half, const Call& call, std::int64_t k_step) {
  if (half != ScalarType::Half && half != ScalarType::BFloat16) return false;
  constexpr std::int64_t kSmall = 8192;
  const std::int64_t rows = all_rows(call);
  return multiplies(half) || rows * call.problem.n * call.problem.k <= kSmall || (rows == 1 && k_step == 1);
}

Tensor add(const Tensor& x, const Tensor& y) {
  AtenTensorHandle sum = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_add_Tensor(x.get(), y.get(), 1, &sum));
  return Tensor(sum);
}

Tensor multiplied(const Tensor& x, const Tensor& y) {
  AtenTensorHandle product = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mul_Tensor(x.get(), y.get(), &product));
  return Tensor(product);
}

/// alpha * a @ b + beta * c in `type`, of the call's output shape. a: (rows, k), b: (k, n); c broadcasts to (rows, n), none where
/// null.
Tensor multiply(const Call& call, ScalarType type, const Tensor& a, const Tensor& b, const Tensor* c = nullptr, double beta = 1,
                double alpha = 1) {
  const std::int64_t n = call.problem.n;
  const bool is_matrix = call.batch.empty() && call.out_shape.size() == 2;
  const Tensor out = empty(call.out_shape, type, call.like), x = converted(a, type), y = converted(b, type),
               matrix = is_matrix ? out : strided(out, std::array{all_rows(call), n}, std::array{n, std::int64_t{1}});
  if (!c && alpha == 1) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(matrix.get(), x.get(), y.get()));
  } else {  // with beta 0 the third operand is not read
    const Tensor third = c ? converted(*c, type) : matrix;
    TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(matrix.get(), third.get(), x.get(), y.get(), c ? beta : 0, alpha));
  }
  return out;
}

/// linear's input as a matrix of all its rows: a copy only where their dims do not merge.
Tensor matrix_of(const TensorView& x) {
  if (x.dim() == 2) return *x.tensor;
  std::int64_t rows = 1;
  bool merges = x.dim() > 2;
  for (std::int64_t d = 0; d + 1 < x.dim(); ++d) {
    rows *= x.size(d);
    merges = merges && (d + 2 == x.dim() || x.stride(d) == x.size(d + 1) * x.stride(d + 1));
  }
  if (merges) return strided(*x.tensor, std::array{rows, x.size(-1)}, std::array{x.stride(-2), x.stride(-1)});
  return torch::stable::reshape(*x.tensor, std::array{rows, x.size(-1)});
}

/// A weight (n, k) or (k) as the matrix (k, n).
Tensor transposed(const TensorView& w) {
  return strided(*w.tensor, std::array{w.size(-1), w.dim() == 1 ? 1 : w.size(0)},
                 std::array{w.stride(-1), w.dim() == 1 ? 1 : w.stride(0)});
}

/// In place: `x` is a product that nobody else has.
Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::relu: return aten("relu_", "", x);
    case Activation::gelu: return aten("gelu_", "", x, std::string("none"));
    case Activation::gelu_tanh: return aten("gelu_", "", x, std::string("tanh"));
    case Activation::silu: return aten("silu_", "", x);
    default: return x;
  }
}

// ---- the ops ----

Tensor matmul(const Tensor& a, const Tensor& b, const Text& precision) {
  const char* const op = "matmul";
  const TensorView va = view(op, "a", a), vb = view(op, "b", b);
  check_dtype(va, kFloating);
  check_like(va, vb);
  Call call{.like = va};
  Problem& p = call.problem;
  p.precision = parse_precision(op, precision);
  check(va.dim() > 0 && vb.dim() > 0, op, "expected a and b with at least 1 dim, got shapes ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  const bool row = va.dim() == 1, column = vb.dim() == 1;  // vectors are a row and a column
  p.m = row ? 1 : va.size(-2);
  p.k = va.size(-1);
  p.n = column ? 1 : vb.size(-1);
  check(p.k == vb.size(column ? -1 : -2), op, "expected a's last dim to equal b's ", column ? "only" : "second-to-last",
        " dim, got shapes ", to_string(va.sizes), " and ", to_string(vb.sizes));
  call.batch = broadcast(va, va.sizes.first(row ? 0 : va.sizes.size() - 2), vb, vb.sizes.first(column ? 0 : vb.sizes.size() - 2));
  call.out_shape = call.batch;
  if (!row) call.out_shape.push_back(p.m);
  if (!column) call.out_shape.push_back(p.n);
#ifdef XGEMM_WITH_CUDA
  if (va.cuda) {
    p.dtype = to_dtype(va.dtype);
    p.a = operand(va, row ? 0 : va.stride(-2), va.stride(-1));
    p.b = operand(vb, column ? vb.stride(-1) : vb.stride(-2), column ? 0 : vb.stride(-1));
    call.a = batch_strides(va, 2, call.batch);
    call.b = batch_strides(vb, 2, call.batch);
    return run_cuda(call);
  }
#endif
  const bool as_is = multiplies_as_is(va.dtype, call, vb.stride(column ? -1 : -2));
  const ScalarType type = as_is ? va.dtype : arithmetic(va.dtype, p.precision);
  if (va.dim() == 2 && vb.dim() == 2) return converted(multiply(call, type, a, b), va.dtype);
  return converted(aten("matmul", "", converted(a, type), converted(b, type)), va.dtype);
}

Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, double beta, double alpha, const Text& precision) {
  const char* const op = "addmm";
  const TensorView vi = view(op, "input", input), va = view(op, "mat1", mat1), vb = view(op, "mat2", mat2);
  check_dtype(va, kFloating);
  check_like(va, vb);
  check_like(va, vi);
  Call call{.like = va};
  Problem& p = call.problem;
  p.precision = parse_precision(op, precision);
  check(va.dim() == 2 && vb.dim() == 2, op, "expected mat1 and mat2 with 2 dims, got shapes ", to_string(va.sizes), " and ",
        to_string(vb.sizes));
  check(va.size(1) == vb.size(0), op, "expected mat1's last dim to equal mat2's first dim, got shapes ", to_string(va.sizes),
        " and ", to_string(vb.sizes));
  p.m = va.size(0), p.n = vb.size(1), p.k = va.size(1);
  call.out_shape = {p.m, p.n};
  if (beta != 0) p.c = broadcast_operand(vi, call.out_shape, call.c);  // else it is not read: nothing of it may show
#ifdef XGEMM_WITH_CUDA
  if (va.cuda) {
    p.dtype = to_dtype(va.dtype);
    p.alpha = alpha, p.beta = beta;
    if (beta == 1 && p.c.row_stride == 0) p.bias = std::exchange(p.c, {});  // the same sum to the last bit, and cheaper
    p.a = operand(va, va.stride(0), va.stride(1));
    p.b = operand(vb, vb.stride(0), vb.stride(1));
    return run_cuda(call);
  }
#endif
  const ScalarType type = multiplies(va.dtype) ? va.dtype : arithmetic(va.dtype, p.precision);  // rounded once there, too
  return converted(multiply(call, type, mat1, mat2, beta == 0 ? nullptr : &input, beta, alpha), va.dtype);
}

/// What the ops on an input of shape (..., m, k), or (k), begin with: their choices, its sizes, its batch. out_shape still wants
/// its last dim.
void begin_linear(const char* op, Call& call, const Text& activation, const Text& precision) {
  const TensorView& x = call.like;
  Problem& p = call.problem;
  p.activation = parse_activation(op, activation);
  p.precision = parse_precision(op, precision);
  check(x.dim() > 0, op, "expected input with at least 1 dim, got shape []");
  const bool row = x.dim() == 1;
  p.m = row ? 1 : x.size(-2), p.k = x.size(-1);
  call.batch.assign(x.sizes.begin(), x.sizes.end() - (row ? 1 : 2));
  call.out_shape.assign(x.sizes.begin(), x.sizes.end() - 1);
#ifdef XGEMM_WITH_CUDA
  if (!x.cuda) return;
  p.dtype = to_dtype(x.dtype);
  p.a = operand(x, row ? 0 : x.stride(-2), x.stride(-1));
  call.a = batch_strides(x, 2, call.batch);
  call.b.assign(call.batch.size(), 0);
#endif
}

/// `prepared`: null, or what prepare() made of the weight.
Tensor linear_with(const char* op, const Tensor& input, const Tensor& weight, const Tensor* prepared,
                   const std::optional<Tensor>& bias, const Text& activation, const std::optional<Tensor>& residual,
                   const Text& precision) {
  const TensorView vx = view(op, "input", input), vw = view(op, "weight", weight);
  check_dtype(vx, kFloating);
  check_like(vx, vw);
  Call call{.like = vx};
  Problem& p = call.problem;
  begin_linear(op, call, activation, precision);
  check(vw.dim() == 1 || vw.dim() == 2, op, "expected weight with 1 or 2 dims, got shape ", to_string(vw.sizes));
  const bool row = vx.dim() == 1, column = vw.dim() == 1;
  p.n = column ? 1 : vw.size(0);
  check(p.k == vw.size(-1), op, "expected input's last dim to equal weight's last dim, got shapes ", to_string(vx.sizes), " and ",
        to_string(vw.sizes));
  if (!column) call.out_shape.push_back(p.n);
  if (prepared) {
    const TensorView v = view(op, "prepared", *prepared);
    check_same_device(vx, v);
    check(v.dtype == ScalarType::Byte && v.dim() == 1, op, "expected prepared to be what prepare(weight) gives, got ",
          to_string(v.dtype), " of shape ", to_string(v.sizes));
    const std::int64_t wanted = column ? 0 : prepared_bytes(vw, p.precision);
    if (wanted > 0 && v.size(0) > 0) {
      check(v.size(0) == wanted && v.stride(0) == 1, op, "expected prepared to be what prepare(weight, precision=", precision,
            ") gives, ", wanted, " bytes, got ", v.size(0));
      p.prepared_b = v.data;
    }
  }
  if (bias) {
    const TensorView v = view(op, "bias", *bias);
    check_like(vx, v);
    check(!column || v.dim() == 0, op, "expected a bias of no dims beside a weight of 1 dim, got shape ", to_string(v.sizes));
    check(v.dim() == 0 || (v.dim() == 1 && (v.size(0) == p.n || v.size(0) == 1)), op, "expected bias of shape [", p.n, "], got ",
          to_string(v.sizes));
    p.bias = operand(v, 0, v.dim() == 1 && v.size(0) != 1 ? v.stride(0) : 0);
  }
  if (residual) {
    const TensorView v = view(op, "residual", *residual);
    check_like(vx, v);
    // Under the full (batch, m, n) shape a vector input or weight has a dim of one.
    p.residual = broadcast_operand(v, call.out_shape, call.residual);
    if (column || row) {
      Shape strides = broadcast_strides(v.sizes, v.strides, call.out_shape);
      p.residual.col_stride = column || strides.empty() ? 0 : strides.back();
      if (!column && !strides.empty()) strides.pop_back();
      p.residual.row_stride = row || strides.empty() ? 0 : strides.back();
      if (!row && !strides.empty()) strides.pop_back();
      call.residual = std::move(strides);
    }
  }
#ifdef XGEMM_WITH_CUDA
  if (vx.cuda) {
    p.b = operand(vw, vw.stride(-1), column ? 0 : vw.stride(0));
    return run_cuda(call);
  }
#endif
  // ReLU of what has been rounded is what ReLU rounded would be.
  const bool rounds_last = !residual && (p.activation == Activation::none || p.activation == Activation::relu);
  const bool as_is = rounds_last && multiplies_as_is(vx.dtype, call, vw.stride(-1));
  const ScalarType type = as_is ? vx.dtype : arithmetic(vx.dtype, p.precision);
  Tensor y = activate(multiply(call, type, matrix_of(vx), transposed(vw), bias ? &*bias : nullptr), p.activation);
  if (residual) y = add(y, converted(*residual, type));
  return converted(y, vx.dtype);
}

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias, const Text& activation,
              const std::optional<Tensor>& residual, const Text& precision) {
  return linear_with("linear", input, weight, nullptr, bias, activation, residual, precision);
}

Tensor linear_prepared(const Tensor& input, const Tensor& weight, const Tensor& prepared, const std::optional<Tensor>& bias,
                       const Text& activation, const std::optional<Tensor>& residual, const Text& precision) {
  return linear_with("linear_prepared", input, weight, &prepared, bias, activation, residual, precision);
}

Tensor prepare(const Tensor& weight, const Text& precision) {
  const char* const op = "prepare";
  const TensorView v = view(op, "weight", weight);
  check_dtype(v, kFloating);
  check(v.dim() == 2, op, "expected weight with 2 dims, got shape ", to_string(v.sizes));
  const Precision how = parse_precision(op, precision);
  const std::int64_t bytes = prepared_bytes(v, how);
  Tensor out = workspace(static_cast<std::size_t>(bytes), v);
#ifdef XGEMM_WITH_CUDA
  if (bytes > 0) {
    CudaScope scope(v);
    Problem p{};
    p.dtype = DType::f32, p.precision = how, p.n = v.size(0), p.k = v.size(1);
    p.b = operand(v, v.stride(1), v.stride(0));
    torch::stable::zero_(out);  // what pads the parts too: the same weight gives the same bytes
    launch_prepare(p, split_parts(how), view(op, "prepared", out).data, scope.stream());
    scope.check_launch();
  }
#endif
  return out;
}

Tensor gated_linear(const Tensor& input, const Tensor& weight_gate, const Tensor& weight_up,
                    const std::optional<Tensor>& bias_gate, const std::optional<Tensor>& bias_up, const Text& activation,
                    const Text& precision) {
  const char* const op = "gated_linear";
  const TensorView vx = view(op, "input", input), vg = view(op, "weight_gate", weight_gate),
                   vu = view(op, "weight_up", weight_up);
  check_dtype(vx, kFloating);
  check_like(vx, vg);
  check_like(vx, vu);
  Call call{.like = vx};
  Problem& p = call.problem;
  begin_linear(op, call, activation, precision);
  check(vg.dim() == 2, op, "expected weight_gate with 2 dims, got shape ", to_string(vg.sizes));
  check(vu.dim() == 2 && vu.size(0) == vg.size(0) && vu.size(1) == vg.size(1), op, "expected weight_up of weight_gate's shape ",
        to_string(vg.sizes), ", got ", to_string(vu.sizes));
  p.n = vg.size(0);
  check(p.k == vg.size(1), op, "expected input's last dim to equal weight_gate's last dim, got shapes ", to_string(vx.sizes),
        " and ", to_string(vg.sizes));
  call.out_shape.push_back(p.n);
  const auto bias = [&](const std::optional<Tensor>& tensor, const char* name) -> Operand {
    if (!tensor) return {};
    const TensorView v = view(op, name, *tensor);
    check_like(vx, v);
    check(v.dim() == 1 && v.size(0) == p.n, op, "expected ", name, " of shape [", p.n, "], got ", to_string(v.sizes));
    return operand(v, 0, v.stride(0));
  };
  p.bias = bias(bias_gate, "bias_gate"), p.bias_up = bias(bias_up, "bias_up");
#ifdef XGEMM_WITH_CUDA
  if (vx.cuda) {
    p.gated = true;
    p.b = operand(vg, vg.stride(1), vg.stride(0));
    p.up = operand(vu, vu.stride(1), vu.stride(0));
    return run_cuda(call);
  }
#endif
  const ScalarType type = arithmetic(vx.dtype, p.precision);
  const Tensor x = converted(matrix_of(vx), type);
  const auto product = [&](const TensorView& weight, const std::optional<Tensor>& b) {
    return multiply(call, type, x, transposed(weight), b ? &*b : nullptr);
  };
  const Tensor gate = activate(product(vg, bias_gate), p.activation);
  return converted(multiplied(gate, product(vu, bias_up)), vx.dtype);
}

XGEMM_REGISTER(xgemm, matmul, matmul);
XGEMM_REGISTER(xgemm, addmm, addmm);
XGEMM_REGISTER(xgemm, linear, linear);
XGEMM_REGISTER(xgemm, gated_linear, gated_linear);
XGEMM_REGISTER(xgemm, prepare, prepare);
XGEMM_REGISTER(xgemm, linear_prepared, linear_prepared);

}  // namespace
}  // namespace xgemm::matmul
