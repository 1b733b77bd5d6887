"""``torch_ext.replace(model)``: a torch model runs on xgemm's operators, in place and reversibly."""

import functools
from collections import Counter
from collections.abc import Callable
from types import FunctionType, MethodType

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from torch_ext import functional as F
from torch_ext import nn
from torch_ext.fake import FLOATING, MAX_HEAD_SIZE

__all__ = ["Replacement", "replace"]


class Replacement:
    """What :func:`replace` swapped, and where calls went since then. Prints as a table; :meth:`undo` reverts the swap.

    Attributes:
        modules: number of modules swapped, by kind.
        calls: number of calls by (kind, where), where is "xgemm" or "torch: <reason>". Calls inside a compiled graph
            are not counted: counting would be an effect that breaks the graph.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.modules: Counter[str] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self._name = type(model).__name__
        self._undo: list[Callable[[], None]] = []

    def __deepcopy__(self, memo: dict) -> "Replacement":
        return self  # a copied model keeps counting here

    def count(self, kind: str, reason: str | None) -> None:
        """Books one call: `reason` is why torch did it, None if xgemm did."""
        if not torch.compiler.is_compiling():
            self.calls[kind, "xgemm" if reason is None else f"torch: {reason}"] += 1

    def undo(self) -> None:
        """Gives the model its own modules and functions back. A second call does nothing."""
        while self._undo:
            self._undo.pop()()

    def __str__(self) -> str:
        modules = ", ".join(f"{n} {kind}" for kind, n in sorted(self.modules.items())) or "none"
        lines = [f"{self._name} on xgemm", f"  modules swapped: {modules}", "  calls so far:"]
        for (kind, where), n in sorted(self.calls.items()):
            lines.append(f"    {kind:<20} {n:>8}  {where}")
        return "\n".join(lines if self.calls else [*lines[:-1], "  calls so far: none"])

    __repr__ = __str__


def replace(model: torch.nn.Module) -> Replacement:
    """Swaps a model's operators for xgemm's, in place.

    - Modules: every ``nn.Linear``, ``nn.Softmax``, ``nn.LogSoftmax`` and ``nn.MultiheadAttention`` in the model
      (exactly these classes: a subclass has a forward of its own). Parameters, hooks, names and state_dict stay as they
      are.
    - Functions: while ``model.forward`` runs, its calls of ``F.linear``, ``torch.matmul``/``@``/``bmm``, ``addmm``,
      ``softmax``, ``log_softmax`` and ``F.scaled_dot_product_attention`` in every spelling, wherever in the model and
      in whatever library they are made. That covers "sdpa" and "eager" attention of Hugging Face transformers. A
      submodule called on its own, past ``model.forward``, has its modules swapped but not its functions.

    A call that xgemm does not serve goes to torch as before and is counted with the reason: an input that requires grad
    in grad mode, dropout in training, a dtype or layout that xgemm does not take, a head size over 256.

    Works under torch.compile and torch.export (swap first, then compile) and in every thread.

    Args:
        model: any module.

    Returns:
        The report; its :meth:`Replacement.undo` reverts the swap.

    Raises:
        TypeError: model is not a module.
        ValueError: model has been swapped already.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"xgemm.replace: expected a torch.nn.Module, got {type(model).__name__}")
    if any(isinstance(module, _Swapped) for module in model.modules()) or hasattr(model.forward, "xgemm_swapped"):
        raise ValueError("xgemm.replace: this model runs on xgemm already; call undo() of its report first")
    report = Replacement(model)
    for module in model.modules():
        if type(module) in _SWAPPED:
            _swap_class(module, report)
    if not isinstance(model, _Swapped):
        _swap_functions(model, report)
    return report


def _swap_class(module: torch.nn.Module, report: Replacement) -> None:
    """Changes the class and nothing else: parameters, hooks and whatever refers to the module stay."""
    original = type(module)

    def undo() -> None:
        module.__class__ = original
        del module._xgemm_report
        if original is torch.nn.MultiheadAttention:
            module._qkv_same_embed_dim = module.in_proj_weight is not None

    module.__class__ = _SWAPPED[original]
    module._xgemm_report = report
    if original is torch.nn.MultiheadAttention:
        nn.keep_off_fused_path(module)
    report.modules[original.__name__] += 1
    report._undo.append(undo)


def _swap_functions(model: torch.nn.Module, report: Replacement) -> None:
    """Puts `model.forward` under a mode that sees every torch function it calls."""
    own = model.__dict__.get("forward")  # an instance's own forward, as some libraries' hooks leave it
    original = type(model).forward

    @functools.wraps(own or original)
    def forward(self, *args, **kwargs):
        with _Functions(report):
            return original(self, *args, **kwargs) if own is None else own(*args, **kwargs)

    def undo() -> None:
        if own is None:
            del model.forward
        else:
            model.forward = own

    forward.xgemm_swapped = True
    model.forward = MethodType(forward, model)  # a bound method: copy.deepcopy binds it to the copy
    report._undo.append(undo)


# ---- who serves a call -----------------------------------------------------------------------------------------------
# Each of these takes the arguments of a torch function and gives the reason why torch must serve the call, or None, and
# our call.


_PLAIN = {Tensor, torch.nn.Parameter}  # torch_ext.distributed adds its types


def _unserved(*inputs: Tensor | None) -> str | None:
    grad = torch.is_grad_enabled()
    for x in inputs:
        if x is None:
            continue
        # A subclass has its own idea of each torch function; what a tracer passes is one only in appearance.
        if type(x) not in _PLAIN and not torch.compiler.is_compiling():
            return type(x).__name__
        if grad and x.requires_grad:
            return "requires grad"
        if x.layout is not torch.strided or x.is_nested:
            return "not dense"
        if x.dtype not in FLOATING:
            return f"dtype {str(x.dtype).removeprefix('torch.')}"
        if not (x.is_cuda or x.is_cpu or x.is_meta):
            return f"device {x.device.type}"
    return None


def _linear(input, weight, bias=None):
    return _unserved(input, weight, bias), lambda: F.linear(input, weight, bias)


def _matmul(input, other):
    return _unserved(input, other), lambda: F.matmul(input, other)


def _rmatmul(input, other):
    return _matmul(other, input)


def _bmm(input, mat2):
    return _unserved(input, mat2), lambda: F.matmul(input, mat2)


def _addmm(input, mat1, mat2, *, beta=1, alpha=1):
    return _unserved(input, mat1, mat2), lambda: F.addmm(input, mat1, mat2, beta=beta, alpha=alpha)


def _softmax(input, dim=None, _stacklevel=3, dtype=None):
    return "no dim" if dim is None else _unserved(input), lambda: F.softmax(input, dim, dtype=dtype)


def _log_softmax(input, dim=None, _stacklevel=3, dtype=None):
    return "no dim" if dim is None else _unserved(input), lambda: F.log_softmax(input, dim, dtype=dtype)


def _attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if dropout_p > 0:
        reason = "dropout"
    elif max(query.shape[-1], value.shape[-1]) > MAX_HEAD_SIZE:
        reason = f"head size over {MAX_HEAD_SIZE}"
    else:
        reason = _unserved(query, key, value, None if attn_mask is None or attn_mask.dtype is torch.bool else attn_mask)
    return reason, lambda: F.attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
    )


_SERVED: dict[Callable, tuple[str, Callable]] = {
    torch.nn.functional.linear: ("linear", _linear),
    torch.addmm: ("addmm", _addmm),
    Tensor.addmm: ("addmm", _addmm),
    torch.matmul: ("matmul", _matmul),
    Tensor.matmul: ("matmul", _matmul),
    Tensor.__matmul__: ("matmul", _matmul),
    Tensor.__rmatmul__: ("matmul", _rmatmul),
    torch.bmm: ("matmul", _bmm),
    Tensor.bmm: ("matmul", _bmm),
    torch.softmax: ("softmax", lambda input, dim, dtype=None: _softmax(input, dim, dtype=dtype)),
    Tensor.softmax: ("softmax", lambda input, dim, dtype=None: _softmax(input, dim, dtype=dtype)),
    torch.nn.functional.softmax: ("softmax", _softmax),
    torch.log_softmax: ("log_softmax", lambda input, dim, dtype=None: _log_softmax(input, dim, dtype=dtype)),
    Tensor.log_softmax: ("log_softmax", lambda input, dim, dtype=None: _log_softmax(input, dim, dtype=dtype)),
    torch.nn.functional.log_softmax: ("log_softmax", _log_softmax),
    torch.nn.functional.scaled_dot_product_attention: ("attention", _attention),
}


# Methods of Tensor that are written in Python: Dynamo traces a call of the method but not of the function.
_PYTHON_METHODS = {method: name for name, method in vars(Tensor).items() if isinstance(method, FunctionType)}


class _Functions(TorchFunctionMode):
    """Sends the functions of `_SERVED` to xgemm, on this thread, while it is entered."""

    def __init__(self, report: Replacement) -> None:
        super().__init__()
        self.report = report

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        served = _SERVED.get(func)
        if served is None or "out" in kwargs:
            if method := _PYTHON_METHODS.get(func):
                return getattr(args[0], method)(*args[1:], **kwargs)
            return func(*args, **kwargs)
        kind, handler = served
        reason, ours = handler(*args, **kwargs)
        self.report.count(kind, reason)
        return ours() if reason is None else func(*args, **kwargs)


# ---- swapped modules -------------------------------------------------------------------------------------------------


class _Swapped:
    """What a swapped module has more than xgemm's: it can fall back to torch's forward."""

    _xgemm_report: Replacement

    def _get_name(self) -> str:
        return f"xgemm.{type(self).__name__}"

    def _serve(self, kind: str, handler: Callable, args: tuple, torchs: Callable[[], object], mode_counts: bool = True):
        """Our call if xgemm takes the arguments, else torch's. Counted once: `mode_counts` if the mode sees torch's."""
        # Under the mode every attribute that is read here would cost a microsecond.
        with torch._C.DisableTorchFunction():
            reason, ours = handler(*args)
            if reason is None:
                self._xgemm_report.count(kind, None)
                return ours()
        if not (mode_counts and any(isinstance(m, _Functions) for m in _get_current_function_mode_stack())):
            self._xgemm_report.count(kind, reason)
        return torchs()


class Linear(_Swapped, nn.Linear):
    activation = "none"
    precision = None

    def forward(self, input: Tensor) -> Tensor:
        args = (input, self.weight, self.bias)
        return self._serve("linear", _linear, args, lambda: torch.nn.Linear.forward(self, input))


class Softmax(_Swapped, nn.Softmax):
    def forward(self, input: Tensor) -> Tensor:
        args = (input, self.dim)
        return self._serve("softmax", _softmax, args, lambda: torch.nn.Softmax.forward(self, input))


class LogSoftmax(_Swapped, nn.LogSoftmax):
    def forward(self, input: Tensor) -> Tensor:
        args = (input, self.dim)
        return self._serve("log_softmax", _log_softmax, args, lambda: torch.nn.LogSoftmax.forward(self, input))


class MultiheadAttention(_Swapped, nn.MultiheadAttention):
    def forward(self, *args, **kwargs) -> tuple[Tensor, Tensor | None]:
        return self._serve("multihead_attention", self._ours, (args, kwargs), lambda: self._torchs(args, kwargs), False)

    def _ours(self, args: tuple, kwargs: dict) -> tuple[str | None, Callable]:
        weights = (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight, self.in_proj_bias)
        others = (self.bias_k, self.bias_v, self.out_proj.weight, self.out_proj.bias)
        inputs = (x for x in (*args[:3], *kwargs.values()) if isinstance(x, Tensor) and x.is_floating_point())
        reason = "dropout" if self.training and self.dropout > 0 else _unserved(*inputs, *weights, *others)
        return reason, lambda: nn.MultiheadAttention.forward(self, *args, **kwargs)

    def _torchs(self, args: tuple, kwargs: dict) -> tuple[Tensor, Tensor | None]:
        """torch's forward reads the flag that keep_off_fused_path changed: it gets a look-alike with the first one."""
        original = torch.nn.MultiheadAttention.__new__(torch.nn.MultiheadAttention)
        original.__dict__ = {**self.__dict__, "_qkv_same_embed_dim": self.in_proj_weight is not None}
        return torch.nn.MultiheadAttention.forward(original, *args, **kwargs)


_SWAPPED: dict[type, type] = {
    torch.nn.Linear: Linear,
    torch.nn.Softmax: Softmax,
    torch.nn.LogSoftmax: LogSoftmax,
    torch.nn.MultiheadAttention: MultiheadAttention,
}
