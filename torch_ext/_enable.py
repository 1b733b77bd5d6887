"""aten's CUDA kernels replaced below torch's autograd, for programs that never name this library."""

import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from torch_ext import _registered, _sdpa
from torch_ext.replace.report import table

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "_addmm_activation")
REDUCTIONS = ("logsumexp", "sum", "mean", "amax", "amin", "argmax", "argmin")
BACKWARD = "_scaled_dot_product_efficient_attention_backward"
GROUPED = "scaled_dot_product_attention"
ATTENTION = (GROUPED, "_scaled_dot_product_efficient_attention", BACKWARD, *_sdpa.FORWARDS)
OPERATORS = (*PRODUCTS, "_softmax", "_log_softmax", *REDUCTIONS, *ATTENTION)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)  # bits 0 to 3 in csrc/device/dtype.h

_ops = torch.ops.xgemm_aten
_lock = threading.RLock()
_active: list["Enabled"] = []  # the last one counts
_libraries: list[torch.library.Library] = []


class Enabled:
    """What :func:`enable` returns: a context, and the counts of where calls went since then. Prints as a table.

    Attributes:
        ops: the operators that this library may serve.
        dtypes: the dtypes in which it may.
        missing: overloads that stay torch's, since this torch has changed them.
    """

    def __init__(self, ops: frozenset[str], dtypes: tuple[torch.dtype, ...], device: str) -> None:
        self.ops = ops
        self.dtypes = dtypes
        self.missing: list[str] = []
        self._device = device
        self._before = _counts()
        self._after: Counter[tuple[str, str]] | None = None  # set by disable()

    @property
    def calls(self) -> Counter[tuple[str, str]]:
        """Number of calls by (operator, server): "xgemm", or "torch: <reason>"; a CUDA graph's replays do not count."""
        now = _counts() if self._after is None else self._after
        return now - self._before

    def disable(self) -> None:
        """Ends it: the settings before hold again, at the end torch's own kernels. A second call does nothing."""
        with _lock:
            if self not in _active:
                return
            self._after = _counts()
            _active.remove(self)
            if _active:
                _apply(_active[-1])
            else:
                _unregister()

    def __enter__(self) -> "Enabled":
        return self

    def __exit__(self, *_: object) -> None:
        self.disable()

    def __str__(self) -> str:
        dtypes = ", ".join(str(dtype).removeprefix("torch.") for dtype in self.dtypes)
        state = "enabled" if self._after is None else "disabled again"
        lines = [f"aten on xgemm: {state}, {dtypes}"]
        if left := [name for name in OPERATORS if name not in self.ops]:
            lines.append(f"  left to torch: {', '.join(left)}")
        if self.missing:
            lines.append(f"  left to torch, not {self._device}'s or not as expected there: {', '.join(self.missing)}")
        return "\n".join([*lines, *table("calls so far", self.calls)])

    __repr__ = __str__


def enable(
    ops: Iterable[str] | None = None, dtypes: Iterable[torch.dtype] | None = None, *, device: str = "cuda"
) -> Enabled:
    """Runs aten's operators on this library's kernels, in every thread of the process and under torch's autograd.

    >>> torch_ext.enable()  # from here on, or:
    >>> with torch_ext.enable() as enabled:
    ...     loss = model(x).sum()
    ...     loss.backward()
    >>> print(enabled)  # which calls ran here, which on torch, and why

    ``linear``, ``matmul``, ``einsum``, ``softmax``, ``scaled_dot_product_attention``, modules and their backwards end
    in these operators, so a program needs no other change; compiled code calls their ``.out`` overloads, which are
    replaced as well. A call that is not ours goes to torch's kernel: another dtype, strides or shape, dropout, and
    where torch is faster. ``torch.backends.cuda.matmul.allow_tf32`` and ``torch.set_float32_matmul_precision`` keep
    their meaning, ``torch_ext.batch_invariant()`` covers all these operators.

    Args:
        ops: operators of aten, of :data:`OPERATORS` (None: all).
        dtypes: of float32, float16, bfloat16, float64 (None: all).
        device: "cuda", or "cpu", where ATen computes: to try a program's way through the operators without a GPU.

    Returns:
        A handle: a context manager, with :meth:`Enabled.disable`. Nested: the innermost counts.

    Raises:
        ValueError: an unknown operator, dtype or device, or another device than in an enclosing call.
        RuntimeError: this torch has no kernels for the device.
    """
    chosen = frozenset(OPERATORS if ops is None else [ops] if isinstance(ops, str) else ops)
    if unknown := sorted(chosen.difference(OPERATORS)):
        raise ValueError(f"xgemm.enable: expected ops among {', '.join(OPERATORS)}, got {', '.join(unknown)}")
    types = DTYPES if dtypes is None else tuple(dtypes)
    if unknown := [str(dtype) for dtype in types if dtype not in DTYPES]:
        raise ValueError(f"xgemm.enable: expected dtypes among {', '.join(map(str, DTYPES))}, got {', '.join(unknown)}")
    if device not in ("cuda", "cpu"):
        raise ValueError(f"xgemm.enable: expected device to be cuda or cpu, got {device!r}")
    with _lock:
        if _active and _active[-1]._device != device:
            raise ValueError(f"xgemm.enable: expected device {_active[-1]._device!r} as around it, got {device!r}")
        enabled = Enabled(chosen, types, device)
        enabled.missing = _active[-1].missing if _active else _register(device.upper())
        _active.append(enabled)
        _apply(enabled)
    return enabled


def _apply(enabled: Enabled) -> None:
    bits = sum(1 << DTYPES.index(dtype) for dtype in set(enabled.dtypes))
    for name in OPERATORS:
        _ops.set_dtypes(name, bits if name in enabled.ops else 0)


def _counts() -> Counter[tuple[str, str]]:
    lines = (line.split("\t") for line in _ops.counts(False).splitlines())
    return Counter({(name, by): int(n) for name, by, n in lines})


def _register(key: str) -> list[str]:
    """Puts our kernels over torch's at a dispatch key, those that csrc/enable/ has not from here."""
    library = torch.library.Library("aten", "IMPL")
    missing = []
    kernels = [
        *((name, f"{name}{overload}", make) for name in ("addmm", "baddbmm", "addmv") for overload, make in _SUMS),
        *(("_addmm_activation", f"_addmm_activation{overload}", make) for overload, make in _SUMS[:2]),  # none in place
        *((name, name, _attention) for name in _sdpa.FORWARDS),
        (BACKWARD, BACKWARD, _attention_backward),
    ]
    with _registered.overriding():
        for name, overload, make in kernels:
            try:
                kernel = torch.library.get_kernel(f"aten::{overload}", key)
            except RuntimeError:  # a torch without it, or without kernels for the key
                missing.append(overload)
                continue
            before = functools.partial(kernel.call_boxed, torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)))
            library.impl(overload, make(name, before), key, allow_override=True)
        if len(missing) == len(kernels):
            library._destroy()
            raise RuntimeError(f"xgemm.enable: torch {torch.__version__} has no kernels for {key}")
        missing += _ops.register(key).split()
    _libraries.append(library)
    _forget_dispatch()
    return missing


def _unregister() -> None:
    _ops.unregister()
    while _libraries:
        _registered.remove(_libraries.pop())
    _forget_dispatch()


def _forget_dispatch() -> None:
    """SDPA is composite unless a backend has a kernel; torch.compile caches which, and is not told of a change."""
    torch.ops.aten.scaled_dot_product_attention.default._dispatch_cache.clear()


def _fit(name: str, *factors: object) -> bool:
    """Whether the kernels can multiply by these factors; complex, symbolic and huge ones go to torch."""
    if all(isinstance(x, int | float) and (abs(x) <= _LARGEST or x - x != 0) for x in factors):
        return True
    _ops.count(name, False)
    return False


_LARGEST = torch.finfo(torch.float32).max


def _sum(name: str, before: Callable) -> Callable:
    """``addmm`` and its like: a product by our operator, or by the kernel `before`."""
    ours = getattr(_ops, name).default._op  # a microsecond less than OpOverload's call

    def kernel(self, mat1, mat2, *, beta=1, alpha=1, **gelu):
        if beta == 1 == alpha:  # a microsecond less than with them
            result = ours(self, mat1, mat2, **gelu)
            return before(self, mat1, mat2, **gelu) if result is None else result
        result = ours(self, mat1, mat2, beta, alpha, **gelu) if _fit(name, beta, alpha) else None
        return before(self, mat1, mat2, beta=beta, alpha=alpha, **gelu) if result is None else result

    return kernel


def _sum_into(name: str, before: Callable) -> Callable:
    """With ``out=`` or, without it, in place."""
    ours = getattr(_ops, name).default._op

    def kernel(self, mat1, mat2, *, beta=1, alpha=1, out=None, **gelu):
        result = self if out is None else out
        if _fit(name, beta, alpha) and ours(self, mat1, mat2, beta, alpha, result, **gelu) is not None:
            return result
        into = {} if out is None else {"out": out}
        return before(self, mat1, mat2, beta=beta, alpha=alpha, **gelu, **into)

    return kernel


_SUMS = (("", _sum), (".out", _sum_into), ("_", _sum_into))


def _attention(name: str, before: Callable) -> Callable:
    """A forward of scaled_dot_product_attention, as torch's own backward wants it."""
    forward, is_ours, count = _sdpa.forward(name), _ops.is_ours.default._op, _ops.count.default._op

    def kernel(query: Tensor, *args, **kwargs):
        if not is_ours(name, query):
            return before(query, *args, **kwargs)
        results = forward(query, *args, **kwargs)
        count(name, results is not None)
        return before(query, *args, **kwargs) if results is None else results

    return kernel


def _repeated_heads(query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    """Keys and values with as many heads as queries, nothing unless heads are grouped. Python takes symbolic sizes."""
    if not query.dim() == key.dim() == value.dim() == 4 or not 1 <= key.size(1) == value.size(1) < query.size(1):
        return []
    if query.size(1) % key.size(1) != 0:
        return []
    queries = query.size(1) // key.size(1)
    return [x[:, :, None].expand(-1, -1, queries, -1, -1).flatten(1, 2) for x in (key, value)]


_registered.library(__name__, "xgemm_aten").impl("repeated_heads", _repeated_heads, "CompositeImplicitAutograd")


def _attention_backward(name: str, before: Callable) -> Callable:
    """Of SDPA's memory-efficient backend, whether its forward was ours or torch's."""
    ours, is_ours, count = getattr(_ops, name).default._op, _ops.is_ours.default._op, _ops.count.default._op
    names = [argument.name for argument in getattr(torch.ops.aten, name).default._schema.arguments]
    read = ("grad_out_", "query", "key", "value", "attn_bias", "out", "logsumexp")

    def kernel(*args, **kwargs):
        given = dict(zip(names, args, strict=False)) | kwargs
        of_bias = given["attn_bias"] is not None and given["grad_input_mask"][3]
        if given["dropout_p"] == 0 and not of_bias:
            grads = ours(*(given[x] for x in read), given.get("is_causal", False), given.get("scale"))
            if grads[0] is not None:
                return *grads, None
        elif is_ours(name, given["query"]):
            count(name, False)
        return before(*args, **kwargs)

    return kernel
