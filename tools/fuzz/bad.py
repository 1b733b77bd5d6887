"""Bad arguments: a valid call with one argument changed. It raises one line, or does what torch does."""

import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from test_attention import Reference
from torch import Tensor

from tools.fuzz.check import CUDA_ERROR, Case, Finding, Inputs, Wrong, function, raw, several, wide
from tools.fuzz.draw import Draw
from tools.fuzz.ops import SEQUENCES

# What else an argument of this name may be told.
VALUES: dict[str, list[Any]] = {
    "dim": [99, -99, 1 << 40, -(1 << 62), [0, 0], [0, 99], [], "x", 1.5, None],
    "keepdim": ["x"],
    "dtype": [torch.int64, torch.complex64, torch.float8_e4m3fn, torch.quint8, "float32", torch.bool],
    "precision": ["low", "", "HIGHEST", None, 3],
    "activation": ["swish", "", "RELU", None, 1],
    "beta": ["x", None, math.nan, math.inf, 0],
    "alpha": ["x", None, math.nan, 0],
    "k": [-1, 65, 10**6, 1 << 40, None, 1.5, "x"],
    "renormalize": ["x"],
    "scale": [math.nan, math.inf, -math.inf, "x"],
    "reduction": ["max", "", None, 1],
    "ignore_index": [1 << 40, -(1 << 62), 1 << 70, None, "x"],
    "label_smoothing": [2.0, -0.1, math.nan, "x", None],
    "is_causal": ["x", True],
    "enable_gqa": ["x", True],
    "causal_alignment": ["middle", "", None],
    "window": [[1], [], [-2, 0], [1, 2, 3], [0, 0], [1 << 62, 3], "x", None],
    "softcap": [math.nan, math.inf, -1.0, 0, "x", None],
    "prepared": [None],
    "max_q": [-1, None, 1.5, "x", 1 << 40],
    "max_k": [-1, None, 1.5, "x", 1 << 40],
}
# torch's own words, of the dispatcher for an operator, of Python for a function.
SCHEMA = re.compile(
    r"^(xgemm::\w+\(\) |Could not run 'xgemm::|Overflow when unpacking long|Unknown keyword argument '"
    r"|call, .*Not yet supported ScalarType|There were no tensor arguments to this function"
    r"|value cannot be converted to type)"
)
PYTHON = re.compile(
    r"^([\w.<>]+\(\) (missing|got|takes) |Overflow when unpacking long|value cannot be converted to type)"
)
EXPECTED = (RuntimeError, ValueError, TypeError, IndexError)


def logsumexp(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return torch.logsumexp(input, list(range(input.dim())) if dim is None or dim == [] else dim, keepdim)


def addmm(input: Tensor, beta: float, precision: str, **inputs: Any) -> Tensor:
    """torch's CPU op wants an input that broadcasts even where it is not read."""
    return torch.addmm(input.new_zeros(()) if beta == 0 else input, beta=beta, **inputs)


def topk_softmax(input: Tensor, k: int, dim: int, renormalize: bool, dtype: torch.dtype | None) -> Any:
    return torch.softmax(input, dim, dtype=dtype).topk(k, dim)


def in_float64(**inputs: Any) -> Reference:
    """Ours takes more masks and batch dims than torch's."""
    return Reference(**wide(inputs))


# torch's op for the arguments as they are; others have no such op, and are asked what computes their reference.
TORCH: dict[str, Callable[..., Any]] = {
    "matmul": lambda a, b, precision: torch.matmul(a, b),
    "addmm": addmm,
    **{op: getattr(torch, op) for op in ("softmax", "log_softmax", "sum", "mean", "argmax", "argmin")},
    "amax": lambda dim, **inputs: torch.amax(dim=dim or [], **inputs),
    "amin": lambda dim, **inputs: torch.amin(dim=dim or [], **inputs),
    "logsumexp": logsumexp,
    "cross_entropy": lambda target, **inputs: torch.nn.functional.cross_entropy(
        target=target.long() if target.dtype is torch.uint8 else target, **inputs
    ),
    "topk_softmax": topk_softmax,
    "attention": lambda **inputs: in_float64(**inputs).output.to(inputs["query"].dtype),
    "attention_lse": lambda **inputs: (in_float64(**inputs).output.to(inputs["query"].dtype), None),
}


def nested(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor([x.reshape(-1)[:2].clone(), x.reshape(-1)[:1].clone()])


def grown(x: Tensor, draw: Draw, by: int) -> Tensor:
    """One element more or less along some dim."""
    if x.dim() == 0:
        return x[None].expand(1 + abs(by))
    dim = draw.rng.randrange(x.dim())
    if by < 0:
        return x.narrow(dim, 0, max(0, x.shape[dim] + by))
    return torch.cat([x, x.new_zeros([by if d == dim else n for d, n in enumerate(x.shape)])], dim)


CHANGES: dict[str, Callable[[Tensor, Draw], Any]] = {
    "None": lambda x, draw: None,
    "a number": lambda x, draw: draw.choice([3, 2.5, True]),
    "a text": lambda x, draw: "x",
    "a list": lambda x, draw: [1.0, 2.0],
    "another dtype": lambda x, draw: x.to(
        draw.choice([torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool])
    ),
    "complex": lambda x, draw: x.to(draw.choice([torch.complex64, torch.complex32, torch.complex128])),
    "eight bits": lambda x, draw: x.to(draw.choice([torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8])),
    "unsigned": lambda x, draw: x.to(draw.choice([torch.uint16, torch.uint32, torch.uint64])),
    "meta": lambda x, draw: x.to("meta"),
    "on the CPU": lambda x, draw: x.cpu(),
    "sparse": lambda x, draw: x.to_sparse(),
    "compressed": lambda x, draw: x.to_sparse_csr() if x.dim() == 2 else x.to_sparse(),
    "quantised": lambda x, draw: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8),
    "nested": lambda x, draw: nested(x),
    "a scalar": lambda x, draw: x.new_zeros(()),
    "a dim more": lambda x, draw: x[None],
    "a dim more at the end": lambda x, draw: x[..., None],
    "a dim less": lambda x, draw: x[0] if x.dim() and x.shape[0] else x.new_zeros(()),
    "two dims more": lambda x, draw: x.expand(2, 3, *x.shape),
    "an element more": lambda x, draw: grown(x, draw, 1),
    "an element less": lambda x, draw: grown(x, draw, -1),
    "empty": lambda x, draw: x.new_zeros(0),
    "transposed": lambda x, draw: x.mT if x.dim() > 1 else x,
    "lazily conjugated": lambda x, draw: torch.complex(x.float(), x.float()).conj().imag,
    "out of range": lambda x, draw: x + draw.choice([-1, 1, 255, 1 << 40]) if x.dtype is torch.int64 else x + 1e30,
}


def changed(case: Case, draw: Draw) -> tuple[str, Inputs]:
    """What has been changed, and the arguments with that change."""
    inputs, kind = dict(case.inputs), draw.rng.random()
    if kind < 0.03:
        return "an unknown argument", inputs | {"colour": "red"}
    if kind < 0.08:
        name = draw.choice(list(inputs))
        del inputs[name]
        return f"without {name}", inputs
    name = draw.choice(list(inputs))
    value = inputs[name]
    if isinstance(value, Tensor):
        change = draw.choice(list(CHANGES))
        try:
            inputs[name] = CHANGES[change](value, draw)
        except (RuntimeError, NotImplementedError):  # torch cannot make such a tensor
            inputs[name] = None
        return f"{name}: {change}", inputs
    inputs[name] = draw.choice(VALUES[name]) if name in VALUES else draw.choice([3, "x", [1.0]])
    return f"{name}={inputs[name]!r}", inputs


def outcome(f: Callable[..., Any], inputs: Inputs) -> Any:
    """The results, or the error."""
    try:
        return several(f(**inputs))
    except Exception as error:
        if CUDA_ERROR.search(str(error)):
            raise
        return error


def judge(error: Exception, op: str, own: re.Pattern[str]) -> None:
    """An error is of a kind that torch raises, and one line that names the op; or torch's own."""
    text = str(error)
    kind = type(error).__name__
    if not isinstance(error, EXPECTED):
        raise Wrong(f"{kind}: {text[:200]!r}")
    if own.match(text):
        return
    names = {op, "linear", "prepare"} if op == "linear_prepared" else {op}  # the function calls all three
    if not any(text.startswith(f"xgemm::{name}: ") for name in names) or "\n" in text or len(text) > 400:
        raise Wrong(f"not one line that names the op: {kind}: {text[:200]!r}")


def run(case: Case, draw: Draw) -> Iterator[Finding]:
    what, inputs = changed(case, draw)
    case.inputs = inputs  # for the report
    case.environment = {"changed": what}
    printed = os.fstat(2).st_size
    found = outcome(raw(case.op), inputs)
    if isinstance(found, Exception):
        judge(found, case.op, SCHEMA)
    by_function = outcome(function(case.op), inputs)
    if isinstance(by_function, Exception):
        judge(by_function, case.op, PYTHON)
    elif isinstance(found, Exception) and case.op != "linear_prepared" and "precision" not in what:
        raise Wrong(f"the operator raised {found}, the function did not")
    if os.fstat(2).st_size > printed:
        raise Wrong("printed on stderr")
    if draw.cuda:
        yield Finding(torch.ones((), dtype=torch.bool, device=draw.device), lambda: "")  # waits for the device
    if isinstance(found, Exception) or case.op == "prepare":
        return
    if len({x.device for x in inputs.values() if isinstance(x, Tensor)}) > 1:
        raise Wrong("accepted tensors on several devices")
    # Accepted: then torch accepts it, too, and finds the same shape. On the CPU: its asserts on a GPU end the process.
    arguments = getattr(torch.ops.xgemm, case.op).default._schema.arguments
    every = {a.name: a.default_value for a in arguments if a.has_default_value()} | inputs
    if draw.cuda:
        every = {name: x.cpu() if isinstance(x, Tensor) and x.is_cuda else x for name, x in every.items()}
    torchs = outcome(TORCH.get(case.op, case.torchs), every)
    if draw.cuda and case.op == "cross_entropy" and isinstance(torchs, IndexError):
        return  # a target that is no class gives NaN
    if draw.cuda and case.op in SEQUENCES:
        return  # lengths that do not fit are cut there
    if isinstance(torchs, ZeroDivisionError):
        return  # no heads at all
    if isinstance(torchs, Exception):
        reason = (str(torchs).splitlines() or [""])[0]
        raise Wrong(f"accepted, though torch raises {type(torchs).__name__}: {reason[:200]!r}")
    for x, y in zip(found, torchs, strict=True):
        if isinstance(y, Tensor) and not y.is_nested and (x.shape, x.dtype) != (y.shape, y.dtype):
            raise Wrong(f"{x.dtype}{list(x.shape)}, torch {y.dtype}{list(y.shape)}")
