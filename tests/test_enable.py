"""torch_ext.enable: aten's operators on xgemm under torch's autograd, on the CPU (through ATen) and on a GPU."""

import contextlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import common
import pytest
import torch
from common import on_hopper, randn, runs_hopper_kernels
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

import torch_ext
from torch_ext._enable import ATTENTION, BACKWARD, GROUPED, OPERATORS, REDUCTIONS, Enabled, enable

aten = torch.ops.aten
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def enabled(device: torch.device) -> Iterator[Enabled]:
    with enable(device=device.type) as handle:
        yield handle
    assert enable(device=device.type).disable() is None  # torch's kernels are back, and can be replaced again


def served(handle: Enabled, name: str) -> int:
    return handle.calls[name, "xgemm"]


def inputs(device: torch.device | str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return randn(*shape, dtype=dtype, device=device)


def described(*results: object) -> list:
    """What a program sees of tensors but their values; numbers as they are."""
    return [(x.dtype, x.device, x.shape, x.stride()) if isinstance(x, Tensor) else x for x in results]


# aten's operator, and its arguments by a function of the first tensor's dtype.
CALLS: list[tuple[str, str, Callable[..., tuple], dict]] = [
    ("mm", "default", lambda x: (x(13, 37), x(37, 19)), {}),
    ("mm", "default", lambda x: (x(37, 13).t(), x(19, 37).t()), {}),
    ("mm", "default", lambda x: (x(0, 5), x(5, 3)), {}),
    ("mm", "default", lambda x: (x(4, 0), x(0, 3)), {}),
    ("bmm", "default", lambda x: (x(3, 13, 37), x(3, 37, 19)), {}),
    ("bmm", "default", lambda x: (x(3, 1, 1).expand(3, 13, 37), x(3, 19, 37).transpose(1, 2)), {}),
    ("addmm", "default", lambda x: (x(19), x(13, 37), x(37, 19)), {}),
    ("addmm", "default", lambda x: (x(13, 19), x(13, 37), x(37, 19)), {"beta": 0.5, "alpha": -2}),
    ("addmm", "default", lambda x: (x(13, 19) * float("nan"), x(13, 37), x(37, 19)), {"beta": 0}),
    ("baddbmm", "default", lambda x: (x(3, 13, 19), x(3, 13, 37), x(3, 37, 19)), {"beta": 2, "alpha": 0.5}),
    ("baddbmm", "default", lambda x: (x(19), x(3, 13, 37), x(3, 37, 19)), {}),
    ("addmv", "default", lambda x: (x(13), x(13, 37), x(37)), {"beta": 0.5}),
    ("_addmm_activation", "default", lambda x: (x(19), x(13, 37), x(37, 19)), {}),
    ("_addmm_activation", "default", lambda x: (x(19), x(13, 37), x(37, 19)), {"use_gelu": True}),
    ("_addmm_activation", "default", lambda x: (x(13, 19), x(13, 37), x(37, 19)), {"beta": 0.5, "alpha": -2}),
    ("_addmm_activation", "default", lambda x: (x(13, 19), x(37, 13).t(), x(37, 19)), {"beta": 0.5, "use_gelu": True}),
    ("_addmm_activation", "default", lambda x: (x(19) * float("nan"), x(13, 37), x(37, 19)), {"beta": 0}),
    ("_softmax", "default", lambda x: (x(5, 37), 1, False), {}),
    ("_softmax", "default", lambda x: (x(5, 37, 3).transpose(0, 2), -2, False), {}),
    ("_log_softmax", "default", lambda x: (x(5, 1037), 1, False), {}),
    ("logsumexp", "default", lambda x: (x(5, 37), [1]), {"keepdim": True}),
    ("sum", "dim_IntList", lambda x: (x(5, 37, 3), [0, 2]), {}),
    ("sum", "dim_IntList", lambda x: (x(5, 37), None), {}),
    ("sum", "dim_IntList", lambda x: (x(5, 37), [1]), {"dtype": torch.float64}),
    ("mean", "dim", lambda x: (x(5, 37), [-1]), {"keepdim": True}),
    ("amax", "default", lambda x: (x(5, 37), [0]), {}),
    ("amin", "default", lambda x: (x(5, 37), []), {}),
    ("argmax", "default", lambda x: (x(5, 37), 1), {}),
    ("argmin", "default", lambda x: (x(5, 37), None), {}),
]
OUT = {"sum": "IntList_out"}


def addmm_activation(c: Tensor, a: Tensor, b: Tensor, *, use_gelu: bool = False, **factors: float) -> Tensor:
    """By torch's other operators: cuBLASLt's GELU, which torch has on a GPU, need not be as exact in float64."""
    x = torch.addmm(c, a, b, **factors)
    return torch.nn.functional.gelu(x, approximate="tanh" if a.is_cuda else "none") if use_gelu else x.relu()


EXACT = {"_addmm_activation": addmm_activation}
IDS = [f"{name}-{i}" for i, (name, *_) in enumerate(CALLS)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "overload", "make", "options"), CALLS, ids=IDS)
def test_operators(name: str, overload: str, make: Callable, options: dict, dtype: torch.dtype, device) -> None:
    """Values, strides, dtype and device are torch's; served here, but for baddbmm and addmv on the CPU."""
    arguments = make(lambda *shape: inputs(device, *shape, dtype=dtype))
    operator = getattr(aten, name)
    before = getattr(operator, overload)(*arguments, **options)
    out = torch.full_like(before, 7)
    with enable(device=device.type) as handle:
        after = getattr(operator, overload)(*arguments, **options)
        result = getattr(operator, OUT.get(name, "out"))(*arguments, **options, out=out)
        ours = served(handle, name)
    on_cpu = device.type == "cpu" and name in ("baddbmm", "addmv")
    assert ours >= (0 if on_cpu else 1 if name in REDUCTIONS else 2), handle
    assert result is out or result.data_ptr() == out.data_ptr()
    double = [x.double() if isinstance(x, Tensor) else x for x in arguments]
    expected = EXACT.get(name, getattr(operator, overload))(*double, **options)
    scale = max(expected.double().abs().max().item(), 1.0) if expected.numel() else 1.0
    assert described(after, out) == described(before, before)
    for x in (after, out):
        if before.dtype is torch.int64:
            assert torch.equal(x, before)
        elif x.numel():
            assert (x.double() - expected).abs().nan_to_num(1e30).max().item() <= 64 * torch.finfo(dtype).eps * scale


@pytest.mark.parametrize("name", ["addmm_", "baddbmm_", "addmv_"])
def test_in_place(name: str, device: torch.device, enabled: Enabled) -> None:
    batch, columns = {"addmm_": ((), (3,)), "baddbmm_": ((2,), (3,)), "addmv_": ((), ())}[name]
    c, a, b = (inputs(device, *batch, *shape) for shape in ((5, *columns), (5, 7), (7, *columns)))
    expected = 0.5 * c.double() + 3 * (a.double() @ b.double())
    assert getattr(c, name)(a, b, beta=0.5, alpha=3) is c
    torch.testing.assert_close(c, expected.float(), rtol=1e-5, atol=1e-5)
    # The input is the output, transposed: not contiguous.
    square = inputs(device, 8, 8)
    expected = square.t().double() + square.double() @ square.double()
    actual = square.t().addmm_(square.clone(), square.clone())
    torch.testing.assert_close(actual, expected.float(), rtol=1e-5, atol=1e-5)


def test_out_of_other_strides_and_on_its_operands(device: torch.device, enabled: Enabled) -> None:
    """An output that kernels cannot write directly, or that torch refuses, or resizes."""
    a, b = inputs(device, 16, 16), inputs(device, 16, 16)
    expected = (a.double() @ b.double()).float()
    for out in (torch.zeros(16, 16, device=device).t(), torch.zeros(16, 32, device=device)[:, ::2],
                torch.zeros(257, device=device)[1:].view(16, 16)):  # fmt: skip
        torch.testing.assert_close(torch.mm(a, b, out=out), expected, rtol=1e-5, atol=1e-5)
    empty = torch.empty(0, device=device)
    torch.testing.assert_close(torch.mm(a, b, out=empty), expected, rtol=1e-5, atol=1e-5)
    assert empty.shape == (16, 16)
    for call in (lambda: torch.mm(a, a[:3]), lambda: torch.mm(a, b, out=empty.double()), lambda: torch.mm(a, a[0]),
                 lambda: torch.bmm(a[None], b.expand(2, 16, 16)), lambda: torch.addmm(a[:3], a, b),
                 lambda: torch._addmm_activation(a[:3], a, b, use_gelu=True),
                 lambda: torch.mm(a, b.double()), lambda: torch.softmax(a, 2), lambda: a.amax(5),
                 lambda: a[:0].amax(0)):  # fmt: skip
        with pytest.raises((RuntimeError, IndexError)) as ours:
            call()
        with enable(ops=(), device=device.type), pytest.raises(type(ours.value)) as theirs:
            call()
        assert str(ours.value) == str(theirs.value)  # torch's own words


@pytest.mark.parametrize("name", ["sum", "mean", "logsumexp"])
def test_a_reduction_into_its_own_input(name: str) -> None:
    """As torch's, whose kernel writes to the output before ours reads the input. (Its own sum is wrong there.)"""
    theirs, ours = inputs(torch.device("cpu"), 4, 3).repeat(2, 1).split(4)
    getattr(torch, name)(theirs, 0, keepdim=True, out=theirs[:1])
    with enable(device="cpu"), torch_ext.batch_invariant():
        getattr(torch, name)(ours, 0, keepdim=True, out=ours[:1])
    torch.testing.assert_close(ours, theirs)


def test_what_is_left_to_torch(device: torch.device, enabled: Enabled) -> None:
    integers = torch.arange(12, device=device).view(3, 4)
    assert torch.equal(integers.sum(1), integers.cpu().sum(1).to(device))
    assert integers.argmax(1).tolist() == [3, 3, 3]
    z = torch.randn(4, 4, device=device, dtype=torch.complex64)
    torch.testing.assert_close(torch.addmm(z, z, z, alpha=2j), z + 2j * (z @ z))
    x = inputs(device, 4, 4)
    with pytest.raises(RuntimeError, match="value cannot be converted to type"):
        torch.addmm(x, x, x, alpha=1e300)
    exotic = torch.zeros(4, 4, device=device, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    for call in (lambda: exotic.sum(0), lambda: torch.mm(exotic, exotic), lambda: aten._softmax(exotic, 0, False)):
        with pytest.raises(RuntimeError, match=r"not (implemented|supported)|expected .* dtype|Float8") as error:
            call()
        assert "xgemm" not in str(error.value)
    torch.testing.assert_close(x[:, ::2].sum(1), x[:, 0] + x[:, 2])
    assert torch.equal(x[:, :1].expand(4, 4).amax(1), x[:, 0])
    calls = enabled.calls
    assert calls["sum", "torch: dtype"] >= 1 and calls["argmax", "torch: dtype"] == 1
    assert calls["mm", "torch: dtype"] == 2 and calls["sum", "torch: strides"] == calls["amax", "torch: strides"] == 1
    assert "torch: dtype" in str(enabled)


def test_reductions_of_permuted_inputs(device: torch.device) -> None:
    """Dense inputs in every order of dims: torch's results are in the order of sizes, and so are ours."""
    for order in itertools.permutations(range(4)):
        x = inputs(device, *((2, 3, 4, 5)[d] for d in order)).permute([order.index(d) for d in range(4)])
        for name in REDUCTIONS:
            for dim, keepdim in itertools.product((0, 2) if name.startswith("arg") else ((0,), (1, 3)), (False, True)):
                before = getattr(torch, name)(x, dim, keepdim=keepdim)
                with enable(device=device.type) as handle:
                    after = getattr(torch, name)(x, dim, keepdim=keepdim)
                assert served(handle, name) == 1, handle
                assert before.is_contiguous() and before.stride() == after.stride()
                torch.testing.assert_close(after, before)


def test_reductions_of_many_dims(device: torch.device, enabled: Enabled) -> None:
    """More dims than the kernels take where no two can be merged."""
    x = inputs(device, *[2] * 20)
    ours = x.sum(list(range(0, 20, 2))).sum()
    torch.testing.assert_close(ours, x.flatten().sum(), rtol=0, atol=0.05)  # of a million terms
    assert enabled.calls["sum", "torch: shapes"] == 1


@on_hopper
def test_products_that_torch_multiplies_faster() -> None:
    """Kept by torch unless the mode asks for an order of additions, in every form of the call."""
    device = torch.device("cuda")
    a, b = (inputs(device, *shape, dtype=torch.float64) for shape in ((2861, 5592), (5592, 144)))
    c = torch.zeros(2861, 144, device=device, dtype=a.dtype)
    expected = a @ b
    for name, call in (
        *(("mm", lambda: torch.mm(a, b)), ("mm", lambda: torch.mm(a, b, out=c))),
        *(("bmm", lambda: torch.bmm(a[None], b[None])[0]), ("addmm", lambda: torch.addmm(c[0] * 0, a, b))),
    ):
        for mode, server in ((contextlib.nullcontext, "torch: faster there"), (torch_ext.batch_invariant, "xgemm")):
            with enable() as handle, mode():
                torch.testing.assert_close(call(), expected, rtol=1e-12, atol=1e-9)
            assert handle.calls[name, server] == 1, handle


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sums_of_products_that_are_off_are_torchs(dtype: torch.dtype, device: torch.device) -> None:
    c, a, b = (inputs(device, *shape, dtype=dtype) for shape in ((17,), (33, 24), (24, 17)))
    batches = inputs(device, 2, 33, 17, dtype=dtype), torch.stack([a, a + 1]), torch.stack([b, b - 1])

    def results() -> list[Tensor]:
        into, out = c.expand(33, 17).clone(), torch.empty(33, 17, dtype=dtype, device=device)
        return [
            torch.addmm(c, a, b),
            torch.addmm(c, a, b, beta=0.5, alpha=2),
            torch.addmm(c, a, b, beta=2, out=out),
            into.addmm_(a, b, alpha=-1),
            torch.baddbmm(*batches, alpha=3),
            batches[0].clone().baddbmm_(*batches[1:]),
            torch.addmv(c[:1], a, b[:, 0]),
            torch._addmm_activation(c, a, b, use_gelu=True),
            torch._addmm_activation(c, a, b, alpha=2, out=torch.empty_like(out)),
        ]

    expected = results()
    with enable("mm", device=device.type) as handle:
        assert all(map(torch.equal, results(), expected))
        with pytest.raises(RuntimeError, match="shape"):
            torch.addmm(c, a, a)
    assert {by for _, by in handle.calls} == {"torch: not enabled"}


def gradients(function: Callable[..., Tensor], arguments: list[Tensor]) -> list[Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in arguments]
    result = function(*leaves)
    torch.manual_seed(1)
    weight = torch.randn(result.shape, dtype=torch.float64).to(result.device, result.dtype)
    return [result.detach(), *torch.autograd.grad((result * weight).sum(), leaves)]


FUNCTIONS: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "linear": (torch.nn.functional.linear, ((4, 33, 24), (40, 24), (40,))),
    "matmul": (torch.matmul, ((2, 3, 33, 24), (24, 17))),
    "einsum": (lambda x, y: torch.einsum("bij,bkj->bik", x, y), ((3, 33, 24), (3, 17, 24))),
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), ((17,), (33, 24), (24, 17))),
    "baddbmm": (torch.baddbmm, ((3, 33, 17), (3, 33, 24), (3, 24, 17))),
    "softmax": (lambda x: x.softmax(-1), ((33, 24),)),
    "log_softmax": (lambda x: x.log_softmax(0), ((33, 24),)),
    "logsumexp": (lambda x: x.logsumexp(1), ((33, 24),)),
    "mean, amax": (lambda x: x.mean(1) + x.amax(1) - x.sum(1), ((33, 24),)),
    "cross_entropy": (lambda x: torch.nn.functional.cross_entropy(x, x.detach().argmax(1)), ((33, 24),)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """At most twice torch's own distance to float64, or close to it."""
    function, shapes = FUNCTIONS[name]
    arguments = [inputs(device, *shape, dtype=dtype) for shape in shapes]
    torchs = gradients(function, arguments)
    with enable(device=device.type) as handle:
        ours = gradients(function, arguments)
    assert any(by == "xgemm" for _, by in handle.calls)
    exact = gradients(function, [x.double() for x in arguments])
    assert described(*ours) == described(*torchs)
    for x, y, z in zip(ours, torchs, exact, strict=True):
        bound = 2 * (y.double() - z).abs().max() + 4 * torch.finfo(dtype).eps * z.abs().max()
        assert (x.double() - z).abs().max() <= bound


ATTENTIONS = {
    "full": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "bool mask": {"mask": "bool"},
    "mask of each head": {"mask": "float"},
    "rows without keys": {"mask": "empty rows"},
}


def attention_mask(kind: str | None, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor | None:
    if kind is None:
        return None
    batch, heads, queries, keys = shape
    if kind == "float":
        return inputs(device, batch, heads, queries, keys, dtype=dtype)
    mask = torch.rand(batch, 1, queries, keys, device=device) < 0.7
    mask[..., 0] = True
    if kind == "empty rows":
        mask[:, :, queries // 2] = False
    return mask


@pytest.mark.cuda
@pytest.mark.parametrize(
    "sizes", [(2, 3, 37, 37, 64), (1, 4, 128, 128, 64), (2, 2, 65, 200, 72), (1, 2, 1, 33, 128)], ids=str
)
@pytest.mark.parametrize("kind", ATTENTIONS)
@pytest.mark.parametrize(
    ("backend", "dtype"),
    [(SDPBackend.EFFICIENT_ATTENTION, torch.float32), (SDPBackend.EFFICIENT_ATTENTION, torch.bfloat16),
     (SDPBackend.FLASH_ATTENTION, torch.bfloat16), (SDPBackend.FLASH_ATTENTION, torch.float16)],
    ids=["efficient-float32", "efficient-bfloat16", "flash-bfloat16", "flash-float16"],
)  # fmt: skip
def test_attention(backend: SDPBackend, dtype: torch.dtype, kind: str, sizes: tuple[int, ...]) -> None:
    """Output and gradients through torch's own backward: close to twice torch's distance to float64 at most."""
    options = dict(ATTENTIONS[kind])
    mask_kind = options.pop("mask", None)
    batch, heads, queries, keys, size = sizes
    if backend is SDPBackend.FLASH_ATTENTION and (mask_kind or (kind == "causal" and queries != keys)):
        pytest.skip("torch's flash backend has no masks, and no causal attention of other sizes")
    device = torch.device("cuda")
    shapes = [(batch, heads, queries, size), (batch, heads, keys, size), (batch, heads, keys, size)]
    arguments = [inputs(device, *shape, dtype=dtype) for shape in shapes]
    mask = attention_mask(mask_kind, (batch, heads, queries, keys), dtype, device)

    def attention(q: Tensor, k: Tensor, v: Tensor, backend: SDPBackend = backend) -> Tensor:
        exact = None if mask is None or mask.dtype is torch.bool else mask.to(q.dtype)
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, attn_mask=mask if exact is None else exact, **options)

    torchs = gradients(attention, arguments)
    with enable() as handle:
        ours = gradients(attention, arguments)
    assert sum(served(handle, name) for name in ATTENTION if name != BACKWARD) == 1, handle
    assert served(handle, BACKWARD) == (dtype is torch.float32 and runs_hopper_kernels()), handle
    exact = gradients(lambda q, k, v: attention(q, k, v, SDPBackend.MATH), [x.double() for x in arguments])
    assert described(*ours) == described(*torchs)
    for x, y, z in zip(ours, torchs, exact, strict=True):
        # In float32 torch computes the scores twice: what it makes wrong cancels, what ours does not.
        factor, ulps = (4, 64) if dtype is torch.float32 else (2, 4)
        magnitude, largest = z.abs().max(), max(other.abs().max() for other in exact)
        if dtype is torch.float32 and magnitude < 1e-12 * largest:
            magnitude = largest  # of the terms: those of a query that sees one key add up to 0
        bound = factor * (y.double() - z).abs().max() + ulps * torch.finfo(dtype).eps * magnitude
        assert (x.double() - z).abs().nan_to_num(1e30).max() <= bound


def backward_inputs(kind: str, sizes: tuple[int, ...]) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values, and the gradient of the output."""
    batch, heads, queries, keys, size = sizes
    device = torch.device("cuda")
    rows = [inputs(device, batch, n, heads, size).transpose(1, 2) for n in (queries, keys, keys, queries)]
    if kind == "integers":
        rows = [x.mul(1.5).round() for x in rows]
    elif kind == "decades":  # a scale for each row; small scores, whose errors do not hide those of scales
        exponents = [inputs(device, batch, 1, x.shape[2], 1) for x in rows]
        spreads = (-exponents[0].abs(), -exponents[1].abs(), exponents[2], 2 * exponents[3])
        rows = [x * 10**spread for x, spread in zip(rows, spreads, strict=True)]
    elif kind == "other strides":
        rows[0], rows[1] = rows[0].contiguous(), rows[1].mT.contiguous().mT
        rows[2], rows[3] = torch.nn.functional.pad(rows[2], (1, 0))[..., 1:], rows[3][:, :1].expand(rows[3].shape)
    return rows[:3], rows[3]


def exact_gradients(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, causal: bool) -> tuple[list[Tensor], list[Tensor]]:
    """In float64; and the sums of the magnitudes of their terms, which are not 0."""
    q, k, v, grad = (x.double() for x in (q, k, v, grad))
    scale = q.shape[-1] ** -0.5
    scores = q @ k.mT * scale
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
    p = scores.softmax(-1)

    def gradients_of(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, sign: int) -> list[Tensor]:
        dp = grad @ v.mT
        ds = p * (dp + sign * (p * dp).sum(-1, keepdim=True)) * scale
        return [ds @ k, ds.mT @ q, p.mT @ grad]

    terms = gradients_of(q.abs(), k.abs(), v.abs(), grad.abs(), 1)
    return gradients_of(q, k, v, grad, -1), [x.clamp(min=1e-30) for x in terms]


OF_BACKWARD = [(1, 1, 1, 1, 4), (2, 3, 31, 33, 64), (1, 2, 129, 64, 40), (2, 1, 65, 130, 100), (1, 5, 200, 301, 128)]


@on_hopper
@pytest.mark.parametrize("kind", ["normal", "integers", "decades", "other strides"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("sizes", [*OF_BACKWARD, (3, 2, 7, 1, 16)], ids=str)
def test_attention_backward(sizes: tuple[int, ...], causal: bool, kind: str) -> None:
    """As near to float64's as torch's, to the magnitude of a row's terms, and the same bits again."""
    (q, k, v), grad = backward_inputs(kind, sizes)
    with enable():
        out, lse, *state = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, causal)
    arguments = (grad, q, k, v, None, out, lse, *state, 0.0, [True, True, True, False], causal)
    dense = [x.clone(memory_format=torch.contiguous_format) if isinstance(x, Tensor) else x for x in arguments]
    torchs = getattr(aten, BACKWARD)(*dense)  # it needs aligned rows
    with enable() as handle:
        ours, again = (getattr(aten, BACKWARD)(*arguments) for _ in range(2))
    assert served(handle, BACKWARD) == 2, handle
    assert ours[3] is None
    for x, x2, y, z, terms in zip(ours, again, torchs, *exact_gradients(q, k, v, grad, causal), strict=False):
        assert torch.equal(x, x2)
        assert (x.dtype, x.shape, x.stride()) == (y.dtype, y.shape, y.stride())
        row = terms.amax(-1, keepdim=True)
        error, torchs_error = (((t.double() - z).abs() / row).nan_to_num(1e30).max() for t in (x, y))
        assert error <= 2 * torchs_error + 4 * torch.finfo(torch.float32).eps


@on_hopper
def test_attention_backward_goes_to_torch() -> None:
    """Of wide heads, with dropout, and for the gradient of a bias."""
    option = "torch: an argument that xgemm does not take"
    cases = (160, None, 0.0, "torch: shapes"), (64, None, 0.3, option), (64, "float", 0.0, option)
    for size, bias, dropout, why in cases:
        (q, k, v), grad = backward_inputs("normal", (1, 2, 16, 24, size))
        mask = attention_mask(bias, (1, 2, 16, 24), q.dtype, q.device)
        out, lse, *state = aten._scaled_dot_product_efficient_attention(q, k, v, mask, True, dropout)
        wanted = [True, True, True, bias is not None]
        with enable() as handle:
            getattr(aten, BACKWARD)(grad, q, k, v, mask, out, lse, *state, dropout, wanted)
        assert [by for name, by in handle.calls if name == BACKWARD] == [why], handle


@on_hopper
def test_attention_backward_spreads_nan() -> None:
    """A NaN or infinity makes the gradients that read it NaN, as torch's."""
    for which, value in itertools.product(range(4), (float("nan"), float("inf"))):
        (q, k, v), grad = backward_inputs("normal", (1, 2, 40, 70, 64))
        (q, k, v, grad)[which][0, 1, 5, 3] = value
        out, lse, *state = aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0)
        arguments = (grad, q, k, v, None, out, lse, *state, 0.0, [True, True, True, False])
        torchs = getattr(aten, BACKWARD)(*arguments)
        with enable():
            ours = getattr(aten, BACKWARD)(*arguments)
        for x, y in zip(ours[:3], torchs[:3], strict=True):
            assert (x.isfinite() | ~y.isfinite()).all() and x[:, 0].isfinite().all()


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("queries", [1, 32, 45])
def test_attention_operators_return_what_torch_returns(queries: int, dtype: torch.dtype) -> None:
    """Shapes, strides, dtypes and devices of every result, and the log-sum-exp's values, padding included."""
    q, k, v = (inputs(torch.device("cuda"), 2, 3, queries, 64, dtype=dtype) for _ in range(3))
    calls = {"_scaled_dot_product_efficient_attention": (q, k, v, None, True, 0.0, False)}
    if dtype is not torch.float32:
        calls["_scaled_dot_product_flash_attention"] = (q, k, v)
        bshd = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
        calls["_flash_attention_forward"] = (*bshd, None, None, queries, queries, 0.0, False, False)
    for name, arguments in calls.items():
        torchs = getattr(aten, name)(*arguments)
        with enable() as handle:
            ours = getattr(aten, name)(*arguments)
        assert served(handle, name) == 1
        torch.testing.assert_close(ours[1], torchs[1], rtol=1e-3, atol=1e-3)
        assert described(*ours) == described(*torchs), name


EAGER = [("eager", kind) for kind in ("full", "causal", "mask of each head")]


@pytest.mark.parametrize(("way", "kind"), [*EAGER, ("compile", "causal"), ("inference", "full")])
def test_attention_of_grouped_heads(way: str, kind: str, device: torch.device) -> None:
    """Values, gradients and the layout of torch's composed products, through the memory-efficient backend on a GPU."""
    options = dict(ATTENTIONS[kind])
    arguments = [inputs(device, 2, heads, length, 16) for heads, length in ((6, 33), (2, 41), (2, 41))]
    mask = attention_mask(options.pop("mask", None), (2, 6, 33, 41), torch.float32, device)

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        exact = None if mask is None else mask.to(q.dtype)
        return scaled_dot_product_attention(q, k, v, attn_mask=exact, enable_gqa=True, **options)

    def run(call: Callable[..., Tensor]) -> list[Tensor]:
        if way != "inference":
            return gradients(call, arguments)
        with torch.inference_mode():
            return [call(*arguments)]

    torchs = run(attention)
    with enable(device=device.type) as handle:
        ours = run(torch.compile(attention, fullgraph=True, dynamic=True) if way == "compile" else attention)
    if way != "compile":  # which may have been traced before, in Inductor's cache
        assert served(handle, GROUPED) == 1, handle
        assert served(handle, "_scaled_dot_product_efficient_attention") == (device.type == "cuda"), handle
    assert ours[0].stride() == torchs[0].stride()
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-5)


def grouped(q: Tensor, k: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, k, enable_gqa=True)


def test_attention_of_symbolic_numbers_of_heads(device: torch.device, enabled: Enabled) -> None:
    compiled = torch.compile(grouped, fullgraph=True, backend="aot_eager")
    for heads, groups in ((6, 2), (8, 4)):
        q, k = inputs(device, 2, heads, 5, 16), inputs(device, 2, groups, 5, 16)
        for x in (q, k):
            torch._dynamo.mark_dynamic(x, 1)  # an error if a number of heads were fixed
        torch.testing.assert_close(compiled(q, k), grouped(q, k))


def test_compiled_attention_before_and_after(device: torch.device) -> None:
    """What a trace without us, and one with us, learnt of SDPA's dispatch does not outlast it."""

    def run() -> None:
        torch._dynamo.reset()
        compiled = torch.compile(grouped, fullgraph=True, backend="aot_eager")
        q, k = inputs(device, 2, 6, 5, 16), inputs(device, 2, 2, 5, 16)
        compiled(q, k)  # without gradients, then with them
        torch.testing.assert_close(gradients(compiled, [q, k]), gradients(grouped, [q, k]), rtol=1e-5, atol=1e-5)

    run()
    with enable(device=device.type) as handle:
        run()
        assert served(handle, GROUPED) > 1, handle  # of which one is the eager call's
    run()


def test_attention_of_heads_that_are_not_grouped(device: torch.device) -> None:
    """Goes its way through torch, uncounted, with torch's errors."""
    q, k = inputs(device, 2, 6, 33, 16), inputs(device, 2, 4, 33, 16)
    with enable(device=device.type) as handle:
        for dtype in (torch.float32, torch.bfloat16):
            grouped(q.to(dtype), q.to(dtype))
        with pytest.raises(RuntimeError, match=r"[Nn]umber of heads"):
            grouped(q, k)
    assert served(handle, GROUPED) == 0


class Model(torch.nn.Module):
    def __init__(self, device: torch.device) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
            self.head = torch.nn.Linear(32, 10)
        self.to(device)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)).log_softmax(-1).mean(1)


def loss_and_gradients(model: torch.nn.Module, x: Tensor, call: Callable | None = None) -> list[Tensor]:
    model.zero_grad()
    loss = (call or model)(x).sum()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def assert_near(ours: object, torchs: object, tolerance: float = 2e-5) -> None:
    torch.testing.assert_close(ours, torchs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("way", ["eager", "checkpoint", "autocast", "compile"])
def test_training_step(way: str, device: torch.device) -> None:
    model, x = Model(device), inputs(device, 3, 7, 32)
    if way == "compile":  # Inductor takes half a minute for the layer
        model.layer = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 32)).to(device)

    def step(y: Tensor) -> Tensor:
        if way == "checkpoint":
            return torch.utils.checkpoint.checkpoint(model, y, use_reentrant=False)
        if way == "autocast":
            with torch.autocast(device.type, torch.bfloat16):
                return model(y).float()
        return model(y)

    call = torch.compile(step) if way == "compile" else step
    torchs = loss_and_gradients(model, x, step)
    with enable(device=device.type) as handle:
        ours = loss_and_gradients(model, x, call)
    assert served(handle, "mm") > 0, handle
    if way == "compile":
        assert any("addmm" in name for name, by in handle.calls if by == "xgemm")
    assert_near(ours, torchs, 5e-2 if way == "autocast" else 2e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer_in_eval_mode(activation: str, device: torch.device) -> None:
    """The layer's fast path, one operator of torch's, which calls these."""
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, activation=activation, batch_first=True, device=device).eval()
    x = inputs(device, 3, 7, 32)
    with torch.inference_mode():
        theirs = layer(x)
        with enable(device=device.type) as handle:
            ours = layer(x)
    assert served(handle, "_addmm_activation") == 1 and re.search(r"_addmm_activation +1 +xgemm", str(handle))
    assert served(handle, "addmm") > 0, handle
    assert_near(ours, theirs, 2e-5 if activation == "relu" else 2e-4)  # cuBLASLt's tanh need not be exact


@pytest.mark.parametrize("layout", ["sliced", "expanded"])
def test_unbacked_sizes_in_compiled_code(layout: str, device: torch.device, enabled: Enabled) -> None:
    """Inductor lays results out as torch's fakes say, before the number of rows is known; one operand is transposed."""
    weight = inputs(device, 12, 10)

    def program(x: Tensor) -> tuple[Tensor, ...]:
        rows = x[x[:, 0] > 0]  # an unbacked number of them
        rows = torch.cat([rows, rows], 1)[:, ::2] if layout == "sliced" else rows[:, :1].expand(-1, 12)
        y = torch.addmm(weight[0], rows, weight) + rows @ weight
        return y, y.softmax(-1), y.t().sum(1), rows.t() @ rows, torch.bmm(y[None], y.t()[None])

    x = inputs(device, 9, 12)
    x[0, 0] = 1.0
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        ours = torch.compile(program, fullgraph=True)(x)
    assert served(enabled, "addmm") and served(enabled, "mm")
    assert served(enabled, "bmm") or device.type == "cuda"  # there Inductor makes an mm of one matrix
    enabled.disable()
    for y, z in zip(ours, program(x), strict=True):
        assert y.stride() == z.stride()
        torch.testing.assert_close(y, z, rtol=1e-5, atol=1e-5 * z.abs().max().clamp(1).item())  # sums may cancel


def test_gradients_of_each_sample(device: torch.device, enabled: Enabled) -> None:
    weight, x = inputs(device, 5, 7), inputs(device, 6, 7)

    def loss(w: Tensor, sample: Tensor) -> Tensor:
        return (w @ sample).softmax(0).square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))
    ours = each(weight, x)
    enabled.disable()
    assert_near(ours, each(weight, x))


def test_second_derivative(device: torch.device, enabled: Enabled) -> None:
    x, w = inputs(device, 9, 6, dtype=torch.float64), inputs(device, 6, 6, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(lambda a: torch.tanh(a @ w).mm(w), x.requires_grad_())


@pytest.mark.cuda
def test_cuda_graph() -> None:
    model, x = Model(torch.device("cuda")), inputs(torch.device("cuda"), 3, 7, 32)
    with enable():
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(2):
                expected = loss_and_gradients(model, x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = loss_and_gradients(model, x)
    for y in captured:
        y.zero_()
    graph.replay()  # as it was captured, also when it is off
    assert all(map(torch.equal, captured, expected))


def test_nested(device: torch.device) -> None:
    x = inputs(device, 4, 4)
    with enable(device=device.type) as outer:
        x @ x
        with enable(ops=["_softmax"], dtypes=[torch.float64], device=device.type) as inner:
            x @ x
            x.softmax(1)
            x.double().softmax(1)
        x @ x
        off = {("mm", "torch: not enabled"): 1, ("_softmax", "torch: not enabled"): 1}
        assert inner.calls == off | {("_softmax", "xgemm"): 1}
        before = outer.calls.copy()
    x @ x
    assert outer.calls == before and before["mm", "xgemm"] == 2
    first, second = enable(device=device.type), enable(ops=(), device=device.type)
    first.disable()  # out of order: the inner one still counts
    x @ x
    assert second.calls["mm", "torch: not enabled"] == 1
    second.disable()
    second.disable()


def test_threads(device: torch.device) -> None:
    x = inputs(device, 64, 64)
    expected = x @ x

    def work() -> bool:
        return all(torch.allclose(x @ x, expected, rtol=1e-4, atol=1e-4) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work) for _ in range(4)]
        for _ in range(10):
            enable(device=device.type).disable()
        assert all(worker.result() for worker in workers)


def test_refuses(device: torch.device) -> None:
    with pytest.raises(ValueError, match=r"expected ops among mm, .* got conv"):
        enable(["conv"], device=device.type)
    with pytest.raises(ValueError, match=r"expected dtypes among torch.float32, .* got torch.int8"):
        enable(dtypes=[torch.int8], device=device.type)
    with pytest.raises(ValueError, match="expected device to be cuda or cpu, got 'tpu'"):
        enable(device="tpu")
    with enable(device="cpu"), pytest.raises(ValueError, match="expected device 'cpu' as around it, got 'cuda'"):
        enable()


def test_batch_invariant_covers_it(device: torch.device, enabled: Enabled) -> None:
    """A row of a whole program has the bits that it has alone."""
    if device.type == "cpu":
        pytest.skip("the CPU's bits are ATen's")
    weight, x = inputs(device, 96, 200), inputs(device, 64, 200)

    def program(rows: Tensor) -> Tensor:
        y = torch.nn.functional.linear(rows, weight).softmax(-1)
        z = torch._addmm_activation(weight[:, 0], rows, weight.t(), use_gelu=True)
        return torch.cat([y, z, y.sum(-1, True), rows.t().contiguous().t().mean(-1, True), y.logsumexp(-1, True)], 1)

    with torch_ext.batch_invariant():
        whole = program(x)
        for rows in (slice(0, 1), slice(3, 20)):
            assert torch.equal(program(x[rows]), whole[rows])


@pytest.mark.parametrize("arguments", [["--report"], ["-m"]])
def test_run(arguments: list[str], tmp_path: Path) -> None:
    """python -m torch_ext.run: the program finds itself as Python would have run it."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, helper, torch_ext._enable as e\n"
        "print(__name__, sys.argv[1:], helper.value, len(e._active), sorted(e._active[0].ops) if e._active else [])\n"
    )
    (tmp_path / "helper.py").write_text("value = 7\n")
    target = ["-m", "program"] if arguments == ["-m"] else [*arguments, program]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{tmp_path}"}

    def run(**more: str) -> subprocess.CompletedProcess:
        command = (sys.executable, "-m", "torch_ext.run", *target, "a", "--b")
        return common.run(*command, env=environment | more, check=True)

    if arguments == ["-m"]:
        assert run(XGEMM_ENABLE="0").stdout == "__main__ ['a', '--b'] 7 0 []\n"
    if torch.backends.cuda.is_built():
        on = run(XGEMM_ENABLE="mm,addmm")
        assert on.stdout == "__main__ ['a', '--b'] 7 1 ['addmm', 'mm']\n"
        assert ("aten on xgemm: " in on.stderr) == (arguments == ["--report"])


def test_run_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    from torch_ext import run

    assert run.main([]) == 2 and run.main(["--unknown"]) == 2
    assert "usage: python -m torch_ext.run" in capsys.readouterr().err


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_data_loader(start: str, device: torch.device, enabled: Enabled) -> None:
    data = torch.arange(24.0).view(8, 3)
    loader = torch.utils.data.DataLoader(data, 4, num_workers=1, multiprocessing_context=start)
    assert torch.equal(torch.cat([*loader]), data)


def test_every_operator_is_known_to_the_library() -> None:
    for name in OPERATORS:
        assert torch.ops.xgemm_aten.set_dtypes(name, 0)
    with pytest.raises(RuntimeError, match=re.escape("xgemm::enable: expected an operator that can be enabled, got x")):
        torch.ops.xgemm_aten.set_dtypes("x", 0)


def test_torch_has_every_overload(device: torch.device, enabled: Enabled) -> None:
    """With the parameters that csrc/enable knows; attention's are a GPU's."""
    assert set(enabled.missing) <= ({*ATTENTION} if device.type == "cpu" else set())


def distributed_step(rank: int, world: int, backend: str, folder: str) -> None:
    """One process: a step under DDP and one under FSDP2, whose gradients are a single process's."""
    import torch.distributed as dist
    from torch.distributed.fsdp import fully_shard

    dist.init_process_group(backend, init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.manual_seed(0)
    batch = torch.randn(2 * world, 7, 32).to(device)
    expected = loss_and_gradients(Model(device), batch)[1:]
    with enable(device=device.type) as handle:
        mine = batch[2 * rank : 2 * rank + 2]
        model = torch.nn.parallel.DistributedDataParallel(Model(device))
        assert_near([g * world for g in loss_and_gradients(model, mine)[1:]], expected)
        fully_shard(sharded := Model(device))
        assert_near([g.full_tensor() * world for g in loss_and_gradients(sharded, mine)[1:]], expected)
    assert handle.calls["mm", "xgemm"] > 0
    dist.destroy_process_group()
    Path(folder, str(rank)).touch()


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.mark.parametrize("backend", ["gloo", pytest.param("nccl", marks=[pytest.mark.cuda, two_gpus])])
def test_two_processes(backend: str, tmp_path: Path) -> None:
    torch.multiprocessing.spawn(distributed_step, (2, backend, str(tmp_path)), nprocs=2)
    assert {path.name for path in tmp_path.iterdir()} >= {"0", "1"}
