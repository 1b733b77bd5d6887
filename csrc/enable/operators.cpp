// aten's products, softmax and reductions on this library's kernels, under torch's autograd: torch_ext/_enable.py switches them
// on.
//
// Registered over torch's kernels at the dispatcher's keys CUDA and CPU, SDPA at AutogradCUDA and AutogradCPU too. A call that is
// not ours (dtype, shape, strides of the result, what is faster there) goes to torch's kernel. Operators with a Scalar argument,
// which the stable ABI does not have, are registered in Python and come here as xgemm_aten::addmm etc.; None: torch has to serve.
#include <algorithm>
#include <list>
#include <mutex>
#include <utility>

#include "device/index_map.h"
#include "enable/answer.h"
#include "matmul/ops.h"
#include "matmul/plan/machine.h"
#include "reduce/ops.h"
#include "softmax/ops.h"
#include "torch/register.h"

namespace xgemm::enable {
namespace {

/// Is there no `out`, or is it of this shape, and of v's dtype (or `dtype`) and device?
bool fits(const std::optional<TensorView>& out, const TensorView& v, ScalarType dtype, ShapeRef shape) {
  return !out || (out->dtype == dtype && out->device_index == v.device_index && std::ranges::equal(out->sizes, shape));
}

std::optional<TensorView> view_of_out(Op op, const Tensor* out) {
  return out ? std::optional(view(name_of(op), "out", *out)) : std::nullopt;
}

/// In `dims` dims: matrices, or equal batches of them, whose sizes fit.
By by_shapes(const TensorView& a, const TensorView& b, std::int64_t dims) {
  const bool fit = a.dim() == dims && b.dim() == dims && a.size(-1) == b.size(-2) && (dims == 2 || a.size(0) == b.size(0));
  return fit ? By::xgemm : By::shape;
}

Precision precision_of(const TensorView& a) {
  return a.cuda && a.dtype == ScalarType::Float && tf32_allowed() ? Precision::high : Precision::highest;
}

/// Other GPUs than Hopper: half precision runs on tensor cores, fp64 too where it can, fp32 as fast as torch's; TF32 is torch's.
bool pays([[maybe_unused]] const TensorView& a) {
#ifdef XGEMM_WITH_CUDA
  const DeviceProperties& gpu = device_properties(a.device_index);
  if (a.cuda && !in_order() && gpu.major != 9)
    return a.dtype == ScalarType::Double ? matmul::rates_of(gpu).mma_f64 > 0 : precision_of(a) == Precision::highest;
#endif
  return true;
}

By by_operands(Op op, const TensorView& a, const TensorView& b, std::int64_t dims) {
  if (const By by = by_settings(op, a.dtype); by != By::xgemm) return by;
  if (a.device_index != b.device_index) return By::device;
  if (a.dtype != b.dtype) return By::dtype;
  if (const By by = by_shapes(a, b, dims); by != By::xgemm) return by;
  return pays(a) ? By::xgemm : By::faster;
}

// kTorch, here and below: torch's kernel, a member of Previous.
template <Op op, auto kTorch>
Tensor product(const Tensor* out, const Tensor& a, const Tensor& b) {
  const auto torch = [&] { return (previous(a.is_cuda()).*kTorch)(out, a.get(), b.get()); };
  if (serving) return torch();
  if (!can_be_ours(a) || !can_be_ours(b) || (out && !can_be_ours(*out))) return count(op, By::dtype), torch();
  const TensorView va = view(name_of(op), "self", a), vb = view(name_of(op), "mat2", b);
  const std::optional<TensorView> vo = view_of_out(op, out);
  By by = by_operands(op, va, vb, op == "mm"_op ? 2 : 3);
  if (by == By::xgemm && vo) {
    Shape shape(va.sizes.begin(), va.sizes.end());
    shape.back() = vb.size(-1);
    if (!fits(vo, va, va.dtype, shape)) by = By::shape;
  }
  return answer(
      op, by, vo ? &*vo : nullptr, {&va, &vb},
      [&](const Tensor* to) { return matmul::matmul(name_of(op), a, b, precision_of(va), to, true); }, torch);
}

using matmul::Activation;

/// GELU as torch computes it here: by erf on a CPU, by tanh, as cuBLASLt does, on a GPU.
Activation activation_of(const TensorView& a, bool use_gelu) {
  return !use_gelu ? Activation::relu : a.cuda ? Activation::gelu_tanh : Activation::gelu;
}
Activation activation_of(const TensorView&) { return Activation::none; }

/// The addmm family: activation(beta * input + alpha * (a @ b)), or an undefined tensor if torch has to serve.
template <Op op, class... Gelu>
Tensor product_sum(const Tensor& input, const Tensor& a, const Tensor& b, double beta, double alpha,
                   const std::optional<Tensor>& out, Gelu... use_gelu) {
  constexpr bool matrices = op == "addmm"_op || op == "_addmm_activation"_op;
  if (serving) return Tensor();
  if (!can_be_ours(input) || !can_be_ours(a) || !can_be_ours(b) || (out && !can_be_ours(*out)))
    return count(op, By::dtype), Tensor();
  const TensorView vi = view(name_of(op), "self", input), va = view(name_of(op), "mat1", a), vb = view(name_of(op), "mat2", b);
  const std::optional<TensorView> vo = view_of_out(op, out ? &*out : nullptr);
  Shape shape(va.sizes.begin(), va.sizes.end());
  const By by_arguments = [&] {
    if (!same_type(va, vb) || !same_type(va, vi)) return va.dtype == vb.dtype && va.dtype == vi.dtype ? By::device : By::dtype;
    if (op == "addmv"_op) {
      if (va.dim() != 2 || vb.dim() != 1 || va.size(1) != vb.size(0)) return By::shape;
      shape.pop_back();
    } else {
      if (by_shapes(va, vb, matrices ? 2 : 3) != By::xgemm) return By::shape;
      shape.back() = vb.size(-1);
    }
    return fits(vo, va, va.dtype, shape) && broadcasts_to(vi.sizes, shape) ? By::xgemm : By::shape;
  }();
  const By by = [&] {
    if (const By settings = by_settings(op, va.dtype); settings != By::xgemm) return settings;
    if (by_arguments != By::xgemm) return by_arguments;
    if (!va.cuda && !matrices) return By::cpu;
    return pays(va) ? By::xgemm : By::faster;
  }();
  // torch's kernel without another way through Python, which takes longer than a small product.
  bool call_torch = by_arguments == By::xgemm && va.cuda;
  const auto serve = [&](const Tensor* to) {
    const bool may_call = std::exchange(call_torch, false);  // not without memory: its error is raised in Python
    Tensor result =
        matmul::addmm(name_of(op), input, a, b, beta, alpha, activation_of(va, use_gelu...), precision_of(va), to, true);
    call_torch = may_call;
    return result;
  };
  const auto torch = [&] {
    if (!call_torch) return Tensor();
    const SumInto sum = op == "addmm"_op ? previous(true).addmm : op == "baddbmm"_op ? previous(true).baddbmm : nullptr;
    if (!sum) return Tensor();
    const Tensor to = out ? *out : empty(shape, va.dtype, va);
    return sum(to.get(), input.get(), a.get(), b.get(), beta, alpha) == AOTI_TORCH_SUCCESS ? to : Tensor();
  };
  return answer(op, by, vo ? &*vo : nullptr, {&vi, &va, &vb}, serve, torch);
}

template <Op op, auto kTorch>
Tensor softmax_of(const Tensor* out, const Tensor& x, std::int64_t dim, bool half_to_float) {
  constexpr bool log = op == "_log_softmax"_op;
  const auto torch = [&] { return (previous(x.is_cuda()).*kTorch)(out, x.get(), dim, half_to_float); };
  if (serving) return torch();
  if (!can_be_ours(x) || (out && !can_be_ours(*out))) return count(op, By::dtype), torch();
  const TensorView v = view(name_of(op), "self", x);
  const std::optional<TensorView> vo = view_of_out(op, out);
  const ScalarType dtype = half_to_float ? ScalarType::Float : v.dtype;
  By by = by_settings(op, v.dtype);
  if (by == By::xgemm && half_to_float && (!v.cuda || v.dtype != ScalarType::Half)) by = By::dtype;
  const std::int64_t rank = std::max<std::int64_t>(v.dim(), 1);
  if (by == By::xgemm && (dim < -rank || dim >= rank || !fits(vo, v, dtype, v.sizes))) by = By::shape;
  return answer(
      op, by, vo ? &*vo : nullptr, {&v}, [&](const Tensor* to) { return softmax::softmax(name_of(op), log, x, dim, dtype, to); },
      torch);
}

using reduce::Kind;

/// A reduction of `x`; torch(out) is torch's kernel.
template <class Torch>
Tensor reduced(Op op, Kind kind, const Tensor& x, ShapeRef dims, bool all, bool keepdim, const std::optional<ScalarType>& dtype,
               const Tensor* out, const Torch& torch) {
  if (serving) return torch(out);
  if (!can_be_ours(x)) return count(op, By::dtype), torch(out);
  const TensorView v = view(name_of(op), "self", x);
  const bool index = kind == Kind::argmax || kind == Kind::argmin;
  By by = by_settings(op, v.dtype);
  if (by == By::xgemm && dtype && !is_floating(*dtype)) by = By::dtype;
  if (by == By::xgemm && (v.numel() == 0 || v.dim() > IndexMap::kMaxDims)) by = By::shape;  // torch's errors and identities
  for (const std::int64_t dim : dims)
    if (dim < -std::max<std::int64_t>(v.dim(), 1) || dim >= std::max<std::int64_t>(v.dim(), 1)) by = By::shape;
  if (by == By::xgemm && !in_order()) {
    // Whatever the order of dims, the memory is read as a dense tensor's. Elements with gaps, or expanded: not measured.
    const Range bytes = memory_of(v);
    if (bytes.end - bytes.begin != static_cast<std::uintptr_t>(v.numel()) * size_of(to_dtype(v.dtype))) by = By::strides;
    if (out) by = By::option;
  }
  // Torch's kernel, which checks and resizes `out`, runs first.
  if (by == By::xgemm && out && can_be_ours(*out) && overlap(view(name_of(op), "out", *out), v)) by = By::option;
  const auto serve = [&](const Tensor* to) { return reduce::reduce(name_of(op), kind, x, dims, all, keepdim, dtype, to); };
  if (by != By::xgemm || !out) return answer(op, by, nullptr, {}, serve, [&] { return torch(out); });
  const Tensor given = torch(out);
  const TensorView vo = view(name_of(op), "out", given);
  if (vo.dtype != (index ? ScalarType::Long : dtype.value_or(v.dtype))) return count(op, By::dtype), given;
  return answer(op, by, &vo, {&v}, serve, [&] { return given; });
}

using Dims = std::optional<std::vector<std::int64_t>>;

template <Op op, Kind kind, auto kTorch>
Tensor sum_of(const Tensor* out, const Tensor& x, const Dims& dim, bool keepdim, const std::optional<ScalarType>& dtype) {
  const OptionalDims given = dim ? OptionalDims(*dim) : std::nullopt;
  const ShapeRef dims = given.value_or(ShapeRef());
  return reduced(op, kind, x, dims, dims.empty(), keepdim, dtype, out,
                 [&](const Tensor* to) { return (previous(x.is_cuda()).*kTorch)(to, x.get(), given, keepdim, dtype); });
}
template <Op op, Kind kind, auto kTorch>
Tensor by_dims(const Tensor* out, const Tensor& x, const std::vector<std::int64_t>& dims, bool keepdim) {
  return reduced(op, kind, x, dims, dims.empty(), keepdim, std::nullopt, out,
                 [&](const Tensor* to) { return (previous(x.is_cuda()).*kTorch)(to, x.get(), dims, keepdim); });
}
template <Op op, Kind kind, auto kTorch>
Tensor index_of(const Tensor* out, const Tensor& x, const std::optional<std::int64_t>& dim, bool keepdim) {
  const std::int64_t d = dim.value_or(0);
  return reduced(op, kind, x, dim ? ShapeRef(&d, 1) : ShapeRef(), !dim, keepdim, std::nullopt, out,
                 [&](const Tensor* to) { return (previous(x.is_cuda()).*kTorch)(to, x.get(), dim, keepdim); });
}

/// aten's overload of a function, and its `.out` overload.
template <auto kFunction>
struct Overloads;
template <class... Parameters, Tensor (*kFunction)(const Tensor* out, Parameters...)>
struct Overloads<kFunction> {
  static Tensor fresh(Parameters... parameters) { return kFunction(nullptr, parameters...); }
  static Tensor into(Parameters... parameters, const Tensor& out) { return kFunction(&out, parameters...); }
};

/// An overload of aten's, its kernel here, and whether torch has the one that it would replace.
struct Overload {
  const char* name;
  BoxedKernel kernel;
  bool found;
};

std::vector<Overload> overloads(bool cuda) {
  const Previous& p = previous(cuda);
  std::vector<Overload> all;
  const auto both = [&]<auto kFunction>(Overloads<kFunction>, const char* fresh, const char* into, const auto& torch) {
    all.push_back({fresh, TORCH_BOX(&Overloads<kFunction>::fresh), torch.fresh != nullptr});
    all.push_back({into, TORCH_BOX(&Overloads<kFunction>::into), torch.into != nullptr});
  };
  both(Overloads<&product<"mm"_op, &Previous::mm>>(), "mm", "mm.out", p.mm);
  both(Overloads<&product<"bmm"_op, &Previous::bmm>>(), "bmm", "bmm.out", p.bmm);
  both(Overloads<&softmax_of<"_softmax"_op, &Previous::softmax>>(), "_softmax", "_softmax.out", p.softmax);
  both(Overloads<&softmax_of<"_log_softmax"_op, &Previous::log_softmax>>(), "_log_softmax", "_log_softmax.out", p.log_softmax);
  both(Overloads<&sum_of<"sum"_op, Kind::sum, &Previous::sum>>(), "sum.dim_IntList", "sum.IntList_out", p.sum);
  both(Overloads<&sum_of<"mean"_op, Kind::mean, &Previous::mean>>(), "mean.dim", "mean.out", p.mean);
  both(Overloads<&by_dims<"amax"_op, Kind::amax, &Previous::amax>>(), "amax", "amax.out", p.amax);
  both(Overloads<&by_dims<"amin"_op, Kind::amin, &Previous::amin>>(), "amin", "amin.out", p.amin);
  both(Overloads<&by_dims<"logsumexp"_op, Kind::logsumexp, &Previous::logsumexp>>(), "logsumexp", "logsumexp.out", p.logsumexp);
  both(Overloads<&index_of<"argmax"_op, Kind::argmax, &Previous::argmax>>(), "argmax", "argmax.out", p.argmax);
  both(Overloads<&index_of<"argmin"_op, Kind::argmin, &Previous::argmin>>(), "argmin", "argmin.out", p.argmin);
  all.push_back({"scaled_dot_product_attention", TORCH_BOX(&attention), p.attention.fresh != nullptr});  // in inference mode
  all.push_back({name_of("_scaled_dot_product_efficient_attention"_op), TORCH_BOX(&efficient_attention),
                 p.efficient_attention.kernel != nullptr});
  return all;
}

std::mutex registering;
std::list<torch::stable::detail::StableLibrary> registered;  // torch's kernels are back when it is empty

/// Registers the kernels for "CUDA" or "CPU". Returns the overloads that stay torch's since it has changed them, one a line.
std::string register_over(const Text& key) {
  using Library = torch::stable::detail::StableLibrary;
  const std::scoped_lock lock(registering);
  std::string missing;
  const std::string autograd = "Autograd" + key;
  if (previous(false).attention.fresh)
    registered.emplace_back(Library::Kind::IMPL, "aten", autograd.c_str(), "xgemm", 0)
        .impl("scaled_dot_product_attention", TORCH_BOX(&attention));
  registered.emplace_back(Library::Kind::IMPL, "aten", key.c_str(), "xgemm", 0);
  for (const Overload& o : overloads(key == "CUDA")) {
    if (o.found)
      registered.back().impl(o.name, o.kernel);
    else
      missing += std::string(o.name) + '\n';
  }
  return missing;
}

bool unregister() {
  const std::scoped_lock lock(registering);
  registered.clear();
  return true;
}

Op known(const Text& name) {
  const std::optional<Op> op = op_of(name);
  check(op.has_value(), "enable", "expected an operator that can be enabled, got ", std::string_view(name));
  return *op;
}

bool set_dtypes(const Text& name, std::int64_t dtypes) { return set(known(name), static_cast<std::uint32_t>(dtypes)), true; }

/// Of an operator that is registered in Python: are calls of x's dtype ours? If not, it is counted as torch's.
bool asked(const Text& name, const Tensor& x) {
  if (serving) return false;
  const Op op = known(name);
  const By by = by_settings(op, x.scalar_type());
  if (by != By::xgemm) count(op, by);
  return by == By::xgemm;
}
/// Counts a call of an operator that is registered in Python.
bool counted(const Text& name, bool ours) { return count(known(name), ours ? By::xgemm : By::option), true; }

}  // namespace
}  // namespace xgemm::enable

STABLE_TORCH_LIBRARY(xgemm_aten, m) {
  m.def("register(str key) -> str");
  m.def("unregister() -> bool");
  m.def("set_dtypes(str op, int dtypes) -> bool");
  m.def("counts(bool reset) -> str");
  m.def("is_ours(str op, Tensor x) -> bool");
  m.def("count(str op, bool ours) -> bool");
  m.def("repeated_heads(Tensor query, Tensor key, Tensor value) -> Tensor[]");  // in Python: sizes may be symbolic
  m.def("addmm(Tensor self, Tensor mat1, Tensor mat2, float beta=1, float alpha=1, Tensor? out=None) -> Tensor");
  m.def("baddbmm(Tensor self, Tensor batch1, Tensor batch2, float beta=1, float alpha=1, Tensor? out=None) -> Tensor");
  m.def("addmv(Tensor self, Tensor mat, Tensor vec, float beta=1, float alpha=1, Tensor? out=None) -> Tensor");
  m.def(
      "_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, float beta=1, float alpha=1, Tensor? out=None, "
      "bool use_gelu=False) -> Tensor");
  m.def(
      "_scaled_dot_product_efficient_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
      "Tensor? attn_bias, Tensor out, Tensor logsumexp, bool is_causal=False, float? scale=None) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(xgemm_aten, CompositeExplicitAutograd, m) {
  using namespace xgemm::enable;
  m.impl("register", TORCH_BOX(&register_over));
  m.impl("unregister", TORCH_BOX(&unregister));
  m.impl("set_dtypes", TORCH_BOX(&set_dtypes));
  m.impl("counts", TORCH_BOX(&counts));
  m.impl("is_ours", TORCH_BOX(&asked));
  m.impl("count", TORCH_BOX(&counted));
  m.impl("addmm", TORCH_BOX(&product_sum<"addmm"_op>));
  m.impl("baddbmm", TORCH_BOX(&product_sum<"baddbmm"_op>));
  m.impl("addmv", TORCH_BOX(&product_sum<"addmv"_op>));
  m.impl("_scaled_dot_product_efficient_attention_backward", TORCH_BOX(&efficient_attention_backward));
  m.impl("_addmm_activation", TORCH_BOX((&product_sum<"_addmm_activation"_op, bool>)));
}
