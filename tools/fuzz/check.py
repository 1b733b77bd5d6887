"""One case: the op is called, and everything that it promises about this call is checked."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from common import poison
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import torch_ext
from tools.fuzz.draw import HALVES, Draw, describe

Inputs = dict[str, Any]
REPEATS = "XGEMM_FUZZ_REPEATS"  # environment variable of the workers: how often a case is called
CUDA_ERROR = re.compile(r"CUDA error|CUDA driver error|cudaError|an illegal memory access")


class Wrong(Exception):
    """What is wrong with a case, in one line."""


@dataclass
class Finding:
    """Something to be looked at on the device: `ok` is a 0-d bool tensor, so that many cases wait for it at once."""

    ok: Tensor
    message: Callable[[], str]


@dataclass
class Bound:
    """How far a result may be from float64's, element by element.

    `error`: absolute, of the accumulator's roundings alone. `size`: how large a number on the way may be; where it is
    near the accumulator's largest one, Inf and NaN depend on the order of additions, and nothing is asked.
    """

    error: Tensor | float
    size: Tensor | float = 0.0


@dataclass
class Case:
    """A valid call, and how to judge it."""

    op: str
    inputs: Inputs  # by the schema's names
    torchs: Callable[..., Any]  # the same by torch's own ops, in whatever dtype it is given; takes `source`
    bound: Callable[..., Any] | None = None  # takes `source` in float64; None: equal to torchs
    source: Inputs | None = None  # inputs as torchs takes them, where that is something else
    dtype: torch.dtype | None = None  # of the result, where not that of the first tensor
    as_torch: bool = False  # twice torch's own error is allowed in fp32, too, not in half precision alone
    exactly: bool = False  # integers: the exact result, rounded once
    rows: dict[str, int] | None = None  # dims along which slices of the inputs give the same bits as a slice of ...
    out_dim: int = 0  # ... the result along this one
    environment: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = ", ".join(describe(name, value) for name, value in self.inputs.items() if value is not None)
        return f"{self.op}({arguments})" + "".join(f" {k}={v}" for k, v in self.environment.items())


def raw(op: str) -> Callable[..., Any]:
    return getattr(torch.ops.xgemm, op)


def function(op: str) -> Callable[..., Any]:
    """The documented function of an op."""
    if op.endswith("_lse"):
        return lambda **inputs: getattr(torch_ext, op.removesuffix("_lse"))(**inputs, return_lse=True)
    if op == "prepare":
        return lambda **inputs: torch_ext.prepare(**inputs).copy
    if op == "linear_prepared":

        def linear(input: Tensor, weight: Tensor, prepared: Tensor, **inputs: Any) -> Tensor:
            return torch_ext.linear(input, torch_ext.prepare(weight, inputs.get("precision", "highest")), **inputs)

        return linear
    return getattr(torch_ext, op)


def several(result: Any) -> tuple[Any, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def wide(inputs: Inputs) -> Inputs:
    return {k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in inputs.items()}


def bits(x: Tensor) -> Tensor:
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.contiguous().view(-1).view(integer)


def same_bits(a: Tensor, b: Tensor) -> Tensor:
    return (bits(a) == bits(b)).all()


@contextlib.contextmanager
def settings(case: Case) -> Iterator[None]:
    """The environment of a case; torch's own precision is set to something that an explicit one has to overrule."""
    variables = dict(case.environment)
    precision = variables.pop("float32_matmul_precision", None)
    before = torch.get_float32_matmul_precision()
    os.environ.update(variables)
    if precision:
        torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for name in variables:
            del os.environ[name]


def call(case: Case, f: Callable[..., Any], inputs: Inputs) -> tuple[Tensor, ...]:
    with settings(case):
        try:
            return several(f(**inputs))
        except Exception as error:
            if CUDA_ERROR.search(str(error)):
                raise
            raise Wrong(
                f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''!r}"
            ) from None


def compare(case: Case, found: Tensor, exact: Tensor, bound: Bound, theirs: Tensor | None) -> Finding:
    """`found` against float64's `exact`, or as far from it as `theirs`, torch's own result in the same dtype.

    That is for half precision, and for Inf and NaN: fp32's gelu(inf) is NaN where torch computes it by vectors.
    """
    dtype = found.dtype
    if not dtype.is_floating_point:
        return Finding((found == exact).all(), lambda: worst(found, exact, (found != exact).double()))
    f, info = found.double(), torch.finfo(dtype)
    if case.exactly:
        rounded = exact.to(dtype).double()
        ok = (f == rounded) | (f.isnan() & rounded.isnan())
        return Finding(ok.all(), lambda: "exact integers: " + worst(found, rounded, (~ok).double()))
    largest = 1e307 if dtype is torch.float64 else 1e38
    error = (f - exact).abs()
    allowed = bound.error + smallest(dtype, found.device)
    if dtype in HALVES:
        allowed = allowed + info.eps * exact.abs()
    if theirs is not None and (case.as_torch or dtype in HALVES):
        compared = exact.isfinite() & theirs.isfinite()
        of_torch = (theirs.double() - exact).abs().where(compared, 0.0).amax()
        size = exact.abs().where(compared, 0.0).amax()
        allowed = torch.as_tensor(allowed).clamp_min(2 * of_torch + info.eps * size)
    ok = error <= allowed
    # Where rounding may take it either way: Inf of the right sign, too.
    ok |= (exact.abs() + allowed >= info.max) & (f == exact.sign() * torch.inf)
    special = (f == exact) | (f.isnan() & exact.isnan())
    if theirs is not None:
        special |= f.isnan() & theirs.isnan()
    ok = torch.where(exact.isfinite(), ok, special)
    if theirs is not None and has_units(dtype, found.device):  # a sum or a factor is beyond the type, as torch's is
        ok |= (f.isnan() & theirs.isnan()) | (f.isinf() & (f == theirs))
    unsure = torch.as_tensor(bound.size) > largest
    ok = ok | unsure

    def message() -> str:
        excess = (error / allowed).nan_to_num(torch.inf).where(~ok, 0.0)
        return worst(found, exact, excess)

    return Finding(ok.all(), message)


def has_units(dtype: torch.dtype, device: torch.device) -> bool:
    """Does a CPU multiply the half type itself? Product, activation and residual are rounded one by one there."""
    supported = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    return device.type == "cpu" and dtype in supported and supported[dtype]()


def smallest(dtype: torch.dtype, device: torch.device) -> float:
    """What any result may lose: the least denormal; all of them where a CPU has units for the type."""
    info = torch.finfo(dtype)
    return info.smallest_normal * (1 if has_units(dtype, device) else info.eps)


def worst(found: Tensor, exact: Tensor, excess: Tensor) -> str:
    """The element that is farthest out."""
    excess = excess.expand(found.shape)
    at = tuple(int(i) for i in torch.unravel_index(excess.argmax(), found.shape))
    where, times = ", ".join(map(str, at)), f"{excess[at].item():.3g}"
    wrong = f"{int((excess > 0).sum())} of {found.numel()} are wrong"
    return f"[{where}] is {found[at].item()!r}, not {exact[at].item()!r}, {times} times the bound; {wrong}"


def check_shape(found: Tensor, exact: Tensor, dtype: torch.dtype, device: torch.device) -> None:
    if found.shape != exact.shape:
        raise Wrong(f"shape {list(found.shape)}, not {list(exact.shape)}")
    if found.dtype is not dtype:
        raise Wrong(f"dtype {found.dtype}, not {dtype}")
    if found.device.type != device.type:
        raise Wrong(f"result on {found.device}")
    beside = found.dim() >= 3 and found.transpose(-2, -3).is_contiguous()  # attention's heads, if the query's lie so
    if not (found.is_contiguous() or beside):
        raise Wrong(f"strides {found.stride()} of shape {list(found.shape)}: not contiguous")


def sliced(case: Case, draw: Draw) -> Iterator[Finding]:
    """In batch-invariant mode a slice of rows or of the batch, by itself, has the bits that it has in the whole, also
    where it lies otherwise in memory; which NaN is not compared.

    On the CPU, where ATen does not promise that, only exact results are compared.
    """
    assert case.rows is not None
    name, dim = next(iter(case.rows.items()))
    count = case.inputs[name].shape[dim]
    first = draw.rng.randrange(count)
    length = draw.choice([1, draw.rng.randint(1, count - first)])
    part = {n: case.inputs[n].narrow(d, first, length) for n, d in case.rows.items()}
    if draw.chance(0.5):
        part = {n: x.clone(memory_format=torch.contiguous_format) for n, x in part.items()}
    with torch_ext.batch_invariant():
        alone = call(case, raw(case.op), case.inputs | part)
        whole = call(case, raw(case.op), case.inputs)
    for x, y in zip(whole, alone, strict=True):
        expected = x.narrow(case.out_dim, first, length)
        if y.shape != expected.shape:
            raise Wrong(f"rows {first} to {first + length - 1} alone: shape {list(y.shape)}")
        same = (bits(y) == bits(expected)).view(y.shape)
        if y.is_floating_point():
            same |= y.isnan() & expected.isnan()
        if not draw.cuda:  # -0 may be 0 there
            same |= y == expected
        yield Finding(
            same.all(),
            lambda y=y, e=expected, same=same: (
                f"other bits alone: {first} to {first + length - 1} along {case.rows}; " + worst(y, e, (~same).double())
            ),
        )


def replayed(case: Case, found: tuple[Tensor, ...]) -> Iterator[Finding]:
    """A CUDA graph of the call gives the same bits."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        captured = call(case, raw(case.op), case.inputs)
    for x in captured:
        if x.numel():
            x.fill_(1)
    graph.replay()
    torch.cuda.synchronize()
    for x, y in zip(found, captured, strict=True):
        yield Finding(same_bits(x, y), lambda: "other bits in a CUDA graph")


def steps(x: Tensor) -> list[int]:
    """The strides that tell where an element lies."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1] if x.numel() else []


def check_fake(case: Case, found: tuple[Tensor, ...]) -> None:
    """What torch.compile and export are told of the result."""
    with FakeTensorMode() as mode:
        inputs = {n: mode.from_tensor(x) if isinstance(x, Tensor) else x for n, x in case.inputs.items()}
        fakes = several(raw(case.op)(**inputs))
    for x, fake in zip(found, fakes, strict=True):
        if (x.shape, x.dtype, x.device, steps(x)) != (fake.shape, fake.dtype, fake.device, steps(fake)):
            told = f"its fake {fake.dtype}{list(fake.shape)} of strides {fake.stride()}"
            raise Wrong(f"{x.dtype}{list(x.shape)} of strides {x.stride()}, {told}")


def run(case: Case, draw: Draw) -> Iterator[Finding]:
    """Checks a case. What is wrong at once is raised as Wrong, what the device has to say first is yielded."""
    before = [base.clone() for base in draw.bases]
    first = next(x for x in case.inputs.values() if isinstance(x, Tensor))
    poison(draw.device, 1)
    found = call(case, raw(case.op), case.inputs)
    # An explicit precision wins: on the CPU within the bound, but not always with the same bits.
    overruled = case.environment.pop("float32_matmul_precision", None) if draw.cuda else None
    again = [call(case, raw(case.op), case.inputs) for _ in range(int(os.environ.get(REPEATS, "2")) - 1)]
    source = case.inputs if case.source is None else case.source
    exact = several(case.torchs(**(source if case.bound is None else wide(source))))
    bounds = several(case.bound(**wide(source))) if case.bound else (Bound(0.0),) * len(exact)
    theirs: tuple[Any, ...] = (None,) * len(exact)
    if case.bound and not case.exactly and (case.as_torch or found[0].dtype in HALVES or draw.theme == "special"):
        with contextlib.suppress(RuntimeError, IndexError):  # torch's op takes less than ours
            theirs = several(case.torchs(**source))
    for i, (x, y) in enumerate(zip(found, exact, strict=True)):
        dtype = y.dtype if case.bound is None or not y.is_floating_point() else case.dtype or first.dtype
        if i and y.is_floating_point():  # attention's log-sum-exp
            dtype = torch.float64 if first.dtype is torch.float64 else torch.float32
        check_shape(x, y, dtype, draw.device)
    when = f"where torch's precision is {overruled!r}" if overruled else "the second time"
    when = when if len(again) == 1 else f"in some of {len(again)} repeats"
    for x, *repeats in zip(found, *again, strict=True):
        same = torch.stack([same_bits(x, y) for y in repeats]).all()
        yield Finding(same, lambda when=when: f"other bits {when}")
    for base, copy in zip(draw.bases, before, strict=True):
        yield Finding(same_bits(base, copy), lambda: "an input has been written to")
    for x, y, bound, peer in zip(found, exact, bounds, theirs, strict=True):
        if x.numel():
            yield compare(case, x, y, bound, peer)
    if case.rows and draw.chance(0.5) and (draw.cuda or case.exactly or case.bound is None):
        yield from sliced(case, draw)
    if draw.cuda and draw.chance(0.02):
        yield from replayed(case, found)
    if draw.chance(0.1):
        for x, y in zip(found, call(case, function(case.op), case.inputs), strict=True):
            yield Finding(same_bits(x, y), lambda: "the function's bits are not the operator's")
    if draw.chance(0.05):
        check_fake(case, found)
