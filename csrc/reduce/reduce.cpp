// sum, mean, amax, amin, argmax, argmin, logsumexp: torch's semantics -> problem -> plan -> launch. CPU and integers: ATen.
#include "device/environment.h"
#include "reduce/ops.h"
#include "reduce/plan.h"
#include "torch/aten.h"
#include "torch/register.h"
#ifdef XGEMM_WITH_CUDA
#include "reduce/converted.h"
#endif

namespace xgemm {
namespace {

using reduce::Kind;
using reduce::kMaxRank;
using reduce::State;
using Dims = std::optional<std::vector<std::int64_t>>;

/// Of torch's operators among the kinds.
const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"sum", "mean", "amax", "amin", "argmax", "argmin", "logsumexp"};
  return kNames[static_cast<int>(kind)];
}

/// A call whose arguments are checked: the same for the CPU and CUDA.
struct Call {
  Kind kind;
  TensorView input;
  std::uint64_t reduced = 0;  ///< bit d: dim d is reduced
  bool all = false;           ///< dim was None
  bool keepdim = false;
  ScalarType compute = ScalarType::Float;  ///< dtype to which an element is converted before it is reduced
  ScalarType output = ScalarType::Float;
  std::array<std::int64_t, kMaxRank> shape{};
  std::size_t rank = 0;  ///< of the output
  ShapeRef output_shape() const { return {shape.data(), rank}; }
};

Call check_arguments(const char* op, Kind kind, const Tensor& input, ShapeRef dims, bool all, bool keepdim,
                     const std::optional<ScalarType>& dtype) {
  Call call{.kind = kind, .input = view(op, "input", input), .all = all, .keepdim = keepdim};
  const TensorView& v = call.input;
  const bool index = reduce::state_of(kind) == State::index, extremum = reduce::state_of(kind) == State::maximum;
  check_dtype(v, index ? kReal : kRealAndBool);
  check(v.dim() <= kMaxRank, op, "expected input of at most ", kMaxRank, " dims, got ", v.dim());
  if (dtype)
    check(std::ranges::find(kRealAndBool, *dtype) != kRealAndBool.end(), op,
          "expected dtype to be a real floating, integer or bool dtype, got ", to_string(*dtype));

  call.compute = dtype.value_or(v.dtype);
  if (kind == Kind::sum && !dtype && !is_floating(v.dtype)) call.compute = ScalarType::Long;
  if (kind == Kind::logsumexp && !is_floating(v.dtype)) call.compute = ScalarType::Float;
  if (kind == Kind::mean) floating_dtype(v, dtype);
  call.output = index ? ScalarType::Long : call.compute;

  // Errors in torch's order: dims out of range, nothing to choose from, dims given twice.
  if (all) {
    dims = {};
    call.reduced = ~std::uint64_t{0};
    check(!extremum || v.numel() > 0, op, "expected dim to be given for an input of no elements, got shape ", to_string(v.sizes));
  }
  for (const std::int64_t dim : dims) call.reduced |= std::uint64_t{1} << wrap_dim(v, dim);
  for (std::size_t d = 0; d < v.sizes.size() && (index || extremum); ++d)
    check(!(call.reduced >> d & 1) || v.sizes[d] > 0, op, "expected the reduced dims to be non-empty, got dim ", d,
          " of size 0 in shape ", to_string(v.sizes));
  std::uint64_t seen = 0;
  for (const std::int64_t dim : dims) {
    const std::uint64_t bit = std::uint64_t{1} << wrap_dim(v, dim);
    check(!(seen & bit), op, "expected every dim at most once, got ", dim, " twice (as one of ", to_string(dims), ")");
    seen |= bit;
  }
  for (std::size_t d = 0; d < v.sizes.size(); ++d) {
    const bool gone = call.reduced >> d & 1;
    if (!gone || keepdim) call.shape[call.rank++] = gone ? 1 : v.sizes[d];
  }
  return call;
}

Tensor run_aten(const Call& call, const std::optional<ScalarType>& dtype) {
  const TensorView& v = call.input;
  std::vector<std::int64_t> dims;
  for (std::int64_t d = 0; d < v.dim(); ++d)
    if (call.reduced >> d & 1) dims.push_back(d);
  const Tensor& x = *v.tensor;
  const char* const name = name_of(call.kind);
  if (call.kind == Kind::sum || call.kind == Kind::mean)
    return aten(name, call.kind == Kind::sum ? "dim_IntList" : "dim", x, Dims(dims), call.keepdim, dtype);
  if (reduce::state_of(call.kind) == State::index)
    return aten(name, "", x, call.all || dims.empty() ? std::nullopt : std::optional(dims[0]), call.keepdim);
  return aten(name, "", converted(x, call.compute), dims, call.keepdim);
}

#ifdef XGEMM_WITH_CUDA
Tensor run_cuda(const Call& call, const Tensor* out) {
  const TensorView& v = call.input;
  CudaScope scope(v);
  Tensor output = out ? *out : empty(call.output_shape(), call.output, v);
  if (std::ranges::find(call.output_shape(), 0) != call.output_shape().end()) return output;

  // A conversion that changes values before they are added (int -> float, float -> half, ...) is a pass of its own. So is, with
  // batch invariance, a copy of rows that are not dense; extrema are the same in any order.
  const bool as_is = reduce::converts_on_load(to_dtype(v.dtype), to_dtype(call.compute));
  const State state = reduce::state_of(call.kind);
  const bool in_order = batch_invariant() && state != State::index && state != State::maximum;
  const bool dense =
      !in_order || v.numel() == 0 || reduce::has_dense_rows({v.data, to_dtype(v.dtype), v.sizes, v.strides}, call.reduced);
  const reduce::Converted input(v, as_is && dense, as_is ? v.dtype : call.compute, scope, in_order ? call.reduced : 0);
  const reduce::Problem problem{.kind = call.kind,
                                .source = input.source(),
                                .reduced = in_order ? input.rows() : call.reduced,
                                .out = to_dtype(call.output),
                                .batch_invariant = in_order};
  reduce::run(v.op, problem, output.data_ptr(), scope);
  return output;
}
#endif

template <Kind kind>
Tensor reduce_typed(const Tensor& input, const Dims& dim, bool keepdim, const std::optional<ScalarType>& dtype) {
  const ShapeRef dims = dim ? ShapeRef(*dim) : ShapeRef();
  return reduce::reduce(name_of(kind), kind, input, dims, dims.empty(), keepdim, dtype);
}

template <Kind kind>
Tensor reduce_dims(const Tensor& input, const Dims& dim, bool keepdim) {
  return reduce_typed<kind>(input, dim, keepdim, std::nullopt);
}

template <Kind kind>
Tensor reduce_index(const Tensor& input, const std::optional<std::int64_t>& dim, bool keepdim) {
  const std::int64_t d = dim.value_or(0);
  return reduce::reduce(name_of(kind), kind, input, {&d, 1}, !dim, keepdim, std::nullopt);
}

XGEMM_REGISTER_FORWARD_ONLY(xgemm, sum, reduce_typed<Kind::sum>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, mean, reduce_typed<Kind::mean>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, amax, reduce_dims<Kind::amax>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, amin, reduce_dims<Kind::amin>);
XGEMM_REGISTER(xgemm, argmax, reduce_index<Kind::argmax>);
XGEMM_REGISTER(xgemm, argmin, reduce_index<Kind::argmin>);
XGEMM_REGISTER_FORWARD_ONLY(xgemm, logsumexp, reduce_dims<Kind::logsumexp>);

}  // namespace

Tensor reduce::reduce(const char* op, Kind kind, const Tensor& input, ShapeRef dims, bool all, bool keepdim,
                      const std::optional<ScalarType>& dtype, [[maybe_unused]] const Tensor* out) {
  const Call call = check_arguments(op, kind, input, dims, all, keepdim, dtype);
#ifdef XGEMM_WITH_CUDA
  // Integers are exact in any order and rarely large: ATen's kernel serves as well.
  if (call.input.cuda && is_floating(call.compute)) return run_cuda(call, out);
#endif
  return run_aten(call, dtype);
}

}  // namespace xgemm
