"""torch.vmap of every operator: one call and no warning, equal to a loop, whichever arguments have a batch dim."""

from functools import partial

import pytest
import torch
from calls import CALLS, Call
from common import Recorder, randn, tuple_of
from named import CASES, OPERATORS, cases_of, make

import torch_ext

BATCH = 3
BATCHED = [op for op in OPERATORS if not op.startswith(("attention_varlen", "attention_with"))]


def stacked(results: list) -> object:
    if isinstance(results[0], tuple):
        return tuple(torch.stack(r) for r in zip(*results, strict=True))
    return torch.stack(results)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("op", BATCHED)
def test_equals_a_loop(op: str, device: torch.device) -> None:
    """Every subset of arguments with a batch dim, at every position of it."""
    raw = getattr(torch.ops.xgemm, op)
    for (shapes, options), number in ((case, n) for case in cases_of(op) for n in range(1, 2 ** len(case[0]))):
        elements, in_dims = [], []
        for i, (name, shape) in enumerate(shapes.items()):
            dim = (number + i) % (len(shape) + 1) if number >> i & 1 else None
            shape = shape if dim is None else (*shape[:dim], BATCH, *shape[dim:])
            elements.append(make(name, shape, torch.float64, device))
            in_dims.append(dim if dim is None or (number + i) % 2 else dim - len(shape))  # from either end

        def call(*tensors: torch.Tensor, names: tuple = (*shapes,), options: dict = options) -> object:
            return raw(**dict(zip(names, tensors, strict=True)), **options)

        loop = [
            call(*(t if d is None else t.select(d, i) for t, d in zip(elements, in_dims, strict=True)))
            for i in range(BATCH)
        ]
        actual = torch.vmap(call, tuple(in_dims))(*elements)
        for ours, expected in zip(tuple_of(actual), tuple_of(stacked(loop)), strict=True):
            what = f"{shapes} {options} in_dims {in_dims}: "
            torch.testing.assert_close(ours, expected, equal_nan=True, msg=lambda m, what=what: what + m)


def test_is_one_call() -> None:
    for op, shapes, options in CASES:
        if op not in BATCHED:
            continue
        first, *others = shapes
        fixed = {name: make(name, shapes[name], torch.float32, torch.device("cpu")) for name in others}
        raw = partial(getattr(torch.ops.xgemm, op), **fixed, **options)
        with Recorder() as recorder:
            torch.vmap(lambda x, raw=raw, first=first: raw(**{first: x}))(randn(BATCH, *shapes[first]))
        on_device = [call for call in recorder.ours if tuple_of(call.result)[0].device.type != "meta"]
        assert len(on_device) == 1, (op, shapes, options)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_nested_and_out_dims(dtype: torch.dtype, device: torch.device) -> None:
    x, w = randn(2, 5, 3, 4, dtype=dtype, device=device), randn(3, 4, 6, dtype=dtype, device=device)

    def layer(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:  # (4), (4, 6)
        return torch_ext.softmax(torch_ext.linear(x, w.mT), 0)

    inner = torch.vmap(layer, (1, 0), 1)  # over 3: (4, 3), (3, 4, 6) to (6, 3)
    actual = torch.vmap(torch.vmap(inner, (0, None)), (0, None))(x.mT, w)
    expected = torch.softmax(torch.einsum("abcd,cde->abce", x.double(), w.double()), -1).mT
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)
    # Batched at the outer level only
    outer = torch.vmap(lambda x: torch.vmap(lambda w: torch_ext.sum(x, 0) + torch_ext.sum(w))(w))(x[0, :, 0])
    torch.testing.assert_close(outer, torch_ext.sum(x[0, :, 0], 1)[:, None] + torch_ext.sum(w, (1, 2)))


def test_chunks_autocast_and_compile(device: torch.device) -> None:
    x, w = randn(6, 3, 4, device=device), randn(6, 5, 4, device=device)
    f = torch.vmap(lambda x, w: torch_ext.linear(x, w, w[:, 0], activation="relu"))
    expected = torch.relu(x @ w.mT + w[:, None, :, 0])
    torch.testing.assert_close(torch.vmap(torch_ext.linear, chunk_size=2)(x, w), x @ w.mT)
    torch.testing.assert_close(f(x, w), expected)
    torch.testing.assert_close(torch.compile(f, fullgraph=True, backend="aot_eager")(x, w), expected)
    with torch.autocast(device.type, torch.bfloat16):
        assert f(x, w).dtype is torch.bfloat16
        torch.testing.assert_close(f(x, w).float(), expected, rtol=5e-2, atol=5e-2)


def test_prepare() -> None:
    w = randn(3, 5, 4)
    assert torch.equal(torch.vmap(torch.ops.xgemm.prepare)(w), torch.stack([torch.ops.xgemm.prepare(x) for x in w]))


@torch.no_grad()
@pytest.mark.filterwarnings("error")
def test_ensemble_of_modules() -> None:
    layers = [torch_ext.nn.Linear(4, 3, activation="gelu") for _ in range(5)]
    parameters, _ = torch.func.stack_module_state(layers)
    x = randn(2, 4)
    actual = torch.vmap(lambda p: torch.func.functional_call(layers[0], p, (x,)))(parameters)
    torch.testing.assert_close(actual, torch.stack([layer(x) for layer in layers]))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x: torch_ext.sum(x, 2), r"^xgemm::sum: expected dim in \[-2, 1\], got 2$"),
        (lambda x: torch_ext.softmax(x, -3), r"^xgemm::softmax: expected dim in \[-2, 1\], got -3$"),
        (lambda x: torch_ext.matmul(x, x), r"expected a's last dim to equal b's second-to-last dim.*\[2, 4\]"),
        (lambda x: torch_ext.matmul(x[0, 0], x), r"expected a and b with at least 1 dim"),
        (lambda x: torch_ext.linear(x, x, x[:, 0], activation="swish"), "^xgemm::linear: expected activation to be"),
        (lambda x: torch_ext.gated_linear(x, x, x, activation="swish"), "xgemm::gated_linear: expected activation to"),
        (lambda x: torch_ext.addmm(x[0], x, x), r"expected mat1's last dim to equal mat2's first dim"),
    ],
)
def test_errors_speak_of_one_element(call, error: str) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError), match=error):
        torch.vmap(call)(randn(3, 2, 4))


def test_an_unknown_reduction_under_autocast() -> None:
    with torch.autocast("cpu"), pytest.raises(ValueError, match="xgemm::cross_entropy: expected reduction to be none"):
        torch.vmap(lambda x: torch_ext.cross_entropy(x, torch.tensor([0, 1]), reduction="max"))(randn(3, 2, 4))


@pytest.mark.parametrize("softmax", [torch_ext.softmax, torch.ops.xgemm.softmax])
def test_requires_grad_is_refused(softmax) -> None:
    x = randn(2, 3, 4).requires_grad_()
    with pytest.raises(RuntimeError, match="xgemm::softmax: has no backward"):
        torch.vmap(torch.vmap(lambda x: softmax(x, 0)))(x)
    with pytest.raises(RuntimeError, match="xgemm::softmax: has no backward"):
        torch.func.grad(lambda x: torch.vmap(lambda x: softmax(x, 0))(x).sum())(x)
    assert torch.vmap(lambda x: torch_ext.argmax(x))(x).shape == (2,)


@pytest.mark.parametrize(
    "call", [c for c in CALLS if c.op.startswith(("attention_varlen", "attention_with"))], ids=lambda call: call.op
)
def test_sequences_have_no_more_batch_dims(call: Call) -> None:
    query, *others = call.args(torch.device("cpu"), torch.float32)
    message = rf"^xgemm::{call.op}: expected tensors without a dim of torch.vmap, got .*$"
    with pytest.raises(RuntimeError, match=message):
        torch.vmap(lambda q: call.raw(q, *others))(query.expand(3, *query.shape))
