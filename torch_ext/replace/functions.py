"""The functions of torch that xgemm serves, and the mode that catches them."""

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, peek_interpreter_stack
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode, _get_current_function_mode, _pop_mode, _push_mode

from torch_ext import functional as F
from torch_ext.fake import FLOATING, widest_head
from torch_ext.replace.einsum import einsum
from torch_ext.replace.operators import left_to_torch
from torch_ext.replace.report import Report

# Another class of tensor has its own idea of torch's functions. torch_ext.distributed adds those that it serves.
PLAIN = {Tensor, torch.nn.Parameter}

_compiling, _grad_enabled, _STRIDED = torch.compiler.is_compiling, torch.is_grad_enabled, torch.strided

# What a handler makes of the arguments of one of torch's functions: why torch must do it, as far as the arguments say;
# the tensors that have to be right for xgemm; and our call. Arguments of another form raise one of _OTHER_FORM.
Handled = tuple[str | None, tuple[Tensor | None, ...], Callable[[], object]]
Handler = Callable[..., Handled]


def booked_reason(report: Report, name: str, *inputs: Tensor | None) -> str | None:
    """What :func:`reason` says, and the call is counted."""
    why = reason(report, name, inputs)
    if why is not None or _compiling():
        report.count(name, why)
    else:
        report.calls[name, "xgemm"] += 1
    return why


def reason(report: Report, name: str, inputs: tuple[Tensor | None, ...]) -> str | None:
    """Why torch must serve a call of operator `name` with these inputs; None if xgemm does."""
    if name not in report.operators:
        return "excluded"
    grad = _grad_enabled()
    for x in inputs:
        if x is None:
            continue
        if type(x) not in PLAIN and not _compiling():  # what a tracer passes is a subclass only in appearance
            return type(x).__name__
        if grad and x.requires_grad:
            return "requires grad"
        if x.layout is not _STRIDED or x.is_nested:
            return "not dense"
    if not _compiling() and (forward_ad._current_level >= 0 or peek_interpreter_stack() is not None):
        why = next(filter(None, (_derivative(x) for x in inputs if x is not None)), None)
        if why is not None:
            return why
    first = inputs[0]  # xgemm says what is wrong if the others differ
    if first.dtype not in FLOATING:
        return f"dtype {str(first.dtype).removeprefix('torch.')}"
    if not (first.is_cuda or first.is_cpu or first.is_meta):
        return f"device {first.device.type}"
    if report.forced:
        return None
    widest = max(x.shape[-1] for x in inputs[:3]) if name == "attention" else 0
    return left_to_torch(name, first.dtype, first.device, widest)


def _derivative(x: Tensor) -> str | None:
    """Which derivative wants `x`, or what `x` wraps as the tensors of torch.func's transforms do."""
    while True:
        if _grad_enabled() and x.requires_grad:
            return "requires grad"
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
            return "tangent"
        if not is_functorch_wrapped_tensor(x):
            return None
        x = get_unwrapped(x)


# ---- handlers --------------------------------------------------------------------------------------------------------


def linear(input, weight, bias=None) -> Handled:
    other = None if bias is None or bias.dim() < 2 else "shapes"  # torch adds what broadcasts
    return other, (input, weight, bias), lambda: F.linear(input, weight, bias)


def _matmul(input, other) -> Handled:
    return None, (input, other), lambda: F.matmul(input, other)


def _autocast(input: Tensor) -> str | None:
    """Of a function that autocast does not treat as the operator that serves it: left to torch under autocast."""
    return "autocast" if torch.is_autocast_enabled(input.device.type) else None


def _product(first: int, second: int) -> Handler:
    """Of a matrix product for inputs of these ranks only, whose second argument has one name or another."""

    def handler(input, *others, **named) -> Handled:
        (other,) = (*others, *named.values())
        if input.dim() != first or other.dim() != second or (first == 3 and input.shape[0] != other.shape[0]):
            return "shapes", (input, other), operator.matmul  # torch says what is wrong with them
        return _autocast(input) if second == 1 else None, (input, other), lambda: F.matmul(input, other)

    return handler


def _addmm(input, mat1, mat2, *, beta=1, alpha=1) -> Handled:
    return None, (input, mat1, mat2), lambda: F.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _addmv(input, mat, vec, *, beta=1, alpha=1) -> Handled:
    def ours() -> Tensor:
        return F.addmm(input.unsqueeze(-1), mat, vec.unsqueeze(-1), beta=beta, alpha=alpha).squeeze(-1)

    other = _autocast(mat) if mat.dim() == 2 and vec.dim() == 1 else "shapes"
    return other, (input, mat, vec), ours


def _baddbmm(input, batch1, batch2, *, beta=1, alpha=1) -> Handled:
    def ours() -> Tensor:
        product = F.matmul(batch1, batch2)
        if beta == 0:
            return product * alpha
        return torch.add(product if alpha == 1 else product * alpha, input.expand_as(product), alpha=beta)

    other, _, _ = _product(3, 3)(batch1, batch2)
    if batch1.dtype not in (torch.float32, torch.float64):
        other = "half precision"  # a product and a sum round twice
    elif input.dtype is not batch1.dtype:
        other = f"dtype {str(input.dtype).removeprefix('torch.')}"
    return other or _autocast(batch1), (input, batch1, batch2), ours


def _inner(input, other) -> Handled:
    def ours() -> Tensor:
        if input.dim() == 1 or other.dim() == 1:
            return F.matmul(input, other) if other.dim() == 1 else F.matmul(other, input)
        return F.linear(input, other.flatten(0, -2)).unflatten(-1, other.shape[:-1])

    why = _autocast(input) if input.dim() == other.dim() == 1 else None
    return why if input.dim() and other.dim() else "shapes", (input, other), ours


def _result_dtype(dtype: torch.dtype | None) -> str | None:
    """Why torch must make a result of this dtype; torch takes Python's `float` as well."""
    return None if dtype is None or dtype in FLOATING else f"dtype {str(dtype).removeprefix('torch.')}"


def _dim(dim: object) -> str | None:
    """Why torch must take this dim: by a name, or an int of NumPy's or in a tensor."""
    return None if isinstance(dim, int) else f"dim of type {type(dim).__name__}"


def _rows(ours: Callable) -> tuple[Handler, Handler]:
    """Softmax as torch and Tensor have it, and as torch.nn.functional has it."""

    def handler(input, dim, dtype=None) -> Handled:
        other = "no dim" if dim is None else _dim(dim) or _result_dtype(dtype)
        return other, (input,), lambda: ours(input, dim, dtype=dtype)

    def functional(input, dim=None, _stacklevel=3, dtype=None) -> Handled:
        return handler(input, dim, dtype)

    return handler, functional


softmax, functional_softmax = _rows(F.softmax)
log_softmax, functional_log_softmax = _rows(F.log_softmax)


def _reduction(ours: Callable) -> Handler:
    def handler(input, dim=None, keepdim=False, *, axis=None, keepdims=False, **dtype) -> Handled:
        if dtype and dtype.keys() != {"dtype"}:
            raise TypeError(dtype)
        dims = axis if dim is None else dim
        other = _result_dtype(dtype.get("dtype"))
        for each in dims if isinstance(dims, tuple | list) else () if dims is None else (dims,):
            other = other or _dim(each)
        return other, (input,), lambda: ours(input, dims, keepdim or keepdims, **dtype)

    return handler


def _cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
) -> Handled:
    if weight is not None:
        other = "class weights"
    elif target.is_floating_point():
        other = "class probabilities"
    elif size_average is not None or reduce is not None:
        other = "arguments"
    elif input.dim() == 1 and target.dim() == 1:
        other = "shapes"  # torch takes one class in a tensor of one element
    else:
        other = None if type(target) in PLAIN or torch.compiler.is_compiling() else type(target).__name__
    options = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing}
    return other, (input,), lambda: F.cross_entropy(input, target, **options)


def attention(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
) -> Handled:
    def ours() -> Tensor:
        return F.attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)

    if dropout_p != 0:
        other = "dropout"
    elif is_causal and attn_mask is not None:
        other = "attn_mask and is_causal"
    else:
        widest = widest_head(query.dtype)
        other = f"head size over {widest}" if max(query.shape[-1], value.shape[-1]) > widest else None
    mask = None if attn_mask is None or attn_mask.dtype is torch.bool else attn_mask
    return other, (query, key, value, mask), ours


# ---- the table -------------------------------------------------------------------------------------------------------

_f = torch.nn.functional

SERVED: dict[Callable, tuple[str, Handler]] = {
    _f.linear: ("linear", linear),
    _f.softmax: ("softmax", functional_softmax),
    _f.log_softmax: ("log_softmax", functional_log_softmax),
    _f.scaled_dot_product_attention: ("attention", attention),
    _f.cross_entropy: ("cross_entropy", _cross_entropy),
    torch.einsum: ("matmul", einsum),
    torch.linalg.matmul: ("matmul", _matmul),
    Tensor.__matmul__: ("matmul", _matmul),
    operator.matmul: ("matmul", _matmul),  # what Dynamo calls a @ b
    torch.special.softmax: ("softmax", softmax),
    torch.special.log_softmax: ("log_softmax", log_softmax),
    torch.special.logsumexp: ("logsumexp", _reduction(F.logsumexp)),
}
for _name, _operator, _handler in (
    ("matmul", "matmul", _matmul),
    ("mm", "matmul", _product(2, 2)),
    ("bmm", "matmul", _product(3, 3)),
    ("mv", "matmul", _product(2, 1)),
    ("dot", "matmul", _product(1, 1)),
    ("inner", "matmul", _inner),
    ("addmm", "addmm", _addmm),
    ("addmv", "addmm", _addmv),
    ("baddbmm", "matmul", _baddbmm),
    ("softmax", "softmax", softmax),
    ("log_softmax", "log_softmax", log_softmax),
    *((_op, _op, _reduction(getattr(F, _op))) for _op in ("sum", "mean", "amax", "amin", "argmax", "argmin")),
    ("logsumexp", "logsumexp", _reduction(F.logsumexp)),
):
    SERVED[getattr(torch, _name)] = SERVED[getattr(Tensor, _name)] = _operator, _handler

# Products, sums and attention that xgemm has no operator for.
NOT_COVERED: dict[Callable, str] = {
    **{getattr(torch, name): name for name in ("addbmm", "tensordot", "chain_matmul", "bilinear", "cdist", "vdot")},
    **{getattr(Tensor, name): name for name in ("addmm_", "addmv_", "baddbmm_", "addbmm", "addbmm_")},
    **{getattr(torch, f"_{name}"): name for name in ("grouped_mm", "scaled_mm", "scaled_grouped_mm", "int_mm")},
    **{getattr(_f, name): name for name in ("grouped_mm", "scaled_mm", "scaled_grouped_mm") if hasattr(_f, name)},
    torch.linalg.multi_dot: "multi_dot",
    _f.multi_head_attention_forward: "multi_head_attention_forward",
    torch.ops.higher_order.flex_attention: "flex_attention",
}

CAUGHT = {**SERVED, **{function: (name, None) for function, name in NOT_COVERED.items()}}

# Dynamo (before 2.15) traces a call of such a method but not of the function that it is.
_PYTHON_METHODS = frozenset(name for name, method in vars(Tensor).items() if isinstance(method, FunctionType))


class Catching(TorchFunctionMode):
    """Sends the functions of `SERVED` to xgemm, on this thread, while it is entered."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report = report

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        served = CAUGHT.get(func)
        if served is None:
            if type(func) is FunctionType and _compiling() and func.__name__ in _PYTHON_METHODS:
                return getattr(args[0], func.__name__)(*args[1:], **kwargs)
            return func(*args, **kwargs)
        return call(self.report, *served, args, kwargs, func)


# What a handler raises for a form of torch's that is not ours, and for arguments whose error torch words.
_OTHER_FORM = (AttributeError, IndexError, TypeError, ValueError)


def call(report: Report, name: str, handler: Handler | None, args: tuple, kwargs: dict, torchs: Callable) -> object:
    """Calls operator `name`, or `torchs` with the same arguments, and counts."""
    if handler is None:
        why = "not covered"
    elif "out" in kwargs:
        why = "out="
    else:
        try:
            why, inputs, ours = handler(*args, **kwargs)
        except _OTHER_FORM:
            why = "arguments"
    if why is None:
        why = booked_reason(report, name, *inputs)
        return ours() if why is None else torchs(*args, **kwargs)
    report.count(name, why)
    return torchs(*args, **kwargs)


@contextmanager
def not_catching() -> Iterator[None]:
    """Whatever runs in here is not caught."""
    if isinstance(_get_current_function_mode(), Catching):
        mode = _pop_mode()
        try:
            yield
        finally:
            _push_mode(mode)
    else:
        yield
