"""Forward only: a gradient is refused, never lost in silence."""

import importlib

import pytest
import torch
from calls import CALLS, DIFFERENTIABLE, Call, name
from common import Recorder, randn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

import torch_ext
from torch_ext import _registered, autograd

MESSAGE = r"^xgemm::\w+: has no backward, got an input that requires grad; call it under torch.no_grad\(\) or"


def with_grad(args: tuple, index: int) -> tuple:
    return tuple(a.clone().requires_grad_() if i == index else a for i, a in enumerate(args))


@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=name)
def test_any_input_that_requires_grad_is_refused(call: Call, device: torch.device) -> None:
    args = call.args(device, torch.float32)
    tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
    for way in (call.raw, getattr(torch.ops.xgemm, call.op), call.function):
        for index in tensors:
            with pytest.raises(RuntimeError, match=MESSAGE) as caught:
                way(*with_grad(args, index), **call.kwargs)
            assert "\n" not in str(caught.value) and f"xgemm::{call.op}:" in str(caught.value)
            for context in (torch.no_grad, torch.inference_mode):
                with context():
                    ours, theirs = way(*with_grad(args, index), **call.kwargs), call.torch_op(*args, **call.kwargs)
                    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        way(*args, **call.kwargs)  # grad mode alone is no error, and the process still works


@pytest.mark.parametrize(
    ("op", "kwarg"),
    [
        *(("linear", "bias"), ("linear", "residual"), ("gated_linear", "bias_gate"), ("gated_linear", "bias_up")),
        *((op, kwarg) for op in ("attention", "attention_lse") for kwarg in ("attn_mask", "sinks")),
    ],
)
def test_keyword_tensors_are_checked_too(op: str, kwarg: str) -> None:
    shapes = [(1, 1, 5, 5)] * 3 if op.startswith("attention") else [(5, 5)] * (2 if op == "linear" else 3)
    extra = randn(5) if kwarg.startswith("bias") else randn(5, 5)
    for way in (getattr(torch.ops.xgemm, op), getattr(torch_ext, op.removesuffix("_lse"))):
        with pytest.raises(RuntimeError, match=MESSAGE):
            way(*(randn(*s) for s in shapes), **{kwarg: extra.requires_grad_()})


@pytest.mark.parametrize(
    ("op", "number"),
    [
        *(("addmm", "alpha"), ("addmm", "beta"), ("cross_entropy", "label_smoothing"), ("attention", "softcap")),
        *((op, "scale") for op in ("scaled_masked_softmax", "attention", "attention_varlen", "attention_with_cache")),
    ],
)
def test_a_number_that_requires_grad_is_refused(op: str, number: str) -> None:
    call = next(call for call in CALLS if call.op == op)
    args, value = call.args(torch.device("cpu"), torch.float32), torch.tensor(0.5)
    expected = call.function(*args, **{number: 0.5})
    torch.testing.assert_close(call.function(*args, **{number: value}), expected)
    value.requires_grad_()
    with pytest.raises(RuntimeError, match=MESSAGE):
        call.function(*args, **{number: value})
    with torch.no_grad():
        torch.testing.assert_close(call.function(*args, **{number: value}), expected)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_indices_have_no_gradient(op: str, device: torch.device) -> None:
    x = randn(4, 5, device=device).requires_grad_()
    for way in (getattr(torch.ops.xgemm, op), getattr(torch_ext, op)):
        assert torch.equal(way(x, 1), getattr(torch, op)(x, 1))


def test_the_check_leaves_no_trace() -> None:
    """After a refused call torch's own autograd works as before, in the same thread."""
    w = randn(3, 3).requires_grad_()
    for _ in range(3):
        with pytest.raises(RuntimeError, match=MESSAGE):
            torch_ext.matmul(w, w)
        with pytest.raises(RuntimeError, match="expected"):
            torch_ext.matmul(w.detach(), randn(4, 4))
    (w @ w).sum().backward()
    assert w.grad is not None


def test_functorch_and_forward_mode_are_refused() -> None:
    a, b = randn(3, 3), randn(3, 3)
    for way in (torch.ops.xgemm.matmul, torch_ext.matmul):
        with pytest.raises(RuntimeError, match=MESSAGE):
            torch.func.grad(lambda x, way=way: way(x, b).sum())(a)
        with pytest.raises(RuntimeError, match="tangent"):
            torch.func.jvp(lambda x, way=way: way(x, b), (a,), (b,))
        with forward_ad.dual_level(), pytest.raises(RuntimeError, match="tangent"):
            way(forward_ad.make_dual(a, b), b)


def test_modules_are_refused() -> None:
    x = randn(2, 4, 8)
    for module, inputs in (
        (torch_ext.nn.Linear(8, 8), (x,)),
        (torch_ext.nn.MultiheadAttention(8, 2), (x, x, x)),
        (torch_ext.nn.Softmax(-1), (x.clone().requires_grad_(),)),
    ):
        with pytest.raises(RuntimeError, match=MESSAGE):
            module(*inputs)
        with torch.no_grad():
            module(*inputs)
        module.requires_grad_(False)
        module(*(i.detach() for i in inputs))


def test_compiled_graphs_are_refused() -> None:
    compiled = torch.compile(torch_ext.matmul, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="has no backward, got an input that requires grad"):
        compiled(randn(3, 3).requires_grad_(), randn(3, 3))
    with torch.no_grad():
        compiled(randn(3, 3).requires_grad_(), randn(3, 3))


class Wrapped(torch.Tensor):
    """A subclass that wraps a tensor, as DTensor does."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, requires_grad: bool = False) -> "Wrapped":
        wrapped = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, device=inner.device, requires_grad=requires_grad
        )
        wrapped.inner = inner
        return wrapped

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))


def test_dense_tensors_go_past_autograd() -> None:
    """The operators' own check needs getters of torch that only their mangled names reach: this torch has them."""
    table = torch._C._dispatch_dump_table("xgemm::sum")
    assert "AutogradCPU: fallthrough" in table and "AutogradCUDA: fallthrough" in table


@pytest.mark.parametrize("op", ["sum", "matmul"])
def test_what_wraps_a_tensor_is_refused(op: str) -> None:
    """The operator gets a tensor that does not require grad, in place of one that does."""
    call = getattr(torch.ops.xgemm, op)
    x, others = randn(3, 3), () if op == "sum" else (randn(3, 3),)
    expected = call(x, *others)
    assert torch.equal(call(Wrapped(x), *others), expected)
    with pytest.raises(RuntimeError, match=MESSAGE):
        call(Wrapped(x, requires_grad=True), *others)
    with torch.no_grad():
        assert torch.equal(call(Wrapped(x, requires_grad=True), *others), expected)
    with Recorder() as recorder:
        assert call(x, *others).shape == expected.shape
        assert [str(call.func) for call in recorder.seen] == [f"xgemm.{op}.default"]
        with pytest.raises(RuntimeError, match=MESSAGE):
            call(x.clone().requires_grad_(), *others)
    with FakeTensorMode() as fakes, pytest.raises(RuntimeError, match=MESSAGE):
        call(fakes.from_tensor(x).requires_grad_(), *map(fakes.from_tensor, others))
    with pytest.raises(RuntimeError, match=MESSAGE):
        torch.func.grad(torch.func.functionalize(lambda x: call(x, *others).sum()))(x)
    with pytest.raises(RuntimeError, match=MESSAGE):
        call(torch.complex(x, x).requires_grad_().conj().imag, *others)  # lazily negated
    with pytest.raises(RuntimeError, match=MESSAGE):
        call(x.to("meta").requires_grad_(), *(y.to("meta") for y in others))


def test_a_kernel_below_autograd_is_not_refused() -> None:
    """An operator of the caller's own, with a backward of its own, may be made of these."""
    x = randn(3, 3)
    with torch._C._AutoDispatchBelowAutograd():
        out = torch.ops.xgemm.matmul(x.clone().requires_grad_(), x)
        assert torch.equal(out, torch.ops.xgemm.matmul(x, x)) and not out.requires_grad
        wrapped = torch.ops.xgemm.matmul(Wrapped(x, requires_grad=True), x)
        assert torch.equal(wrapped, out) and not wrapped.requires_grad
        with forward_ad.dual_level():
            assert torch.equal(torch.ops.xgemm.matmul(forward_ad.make_dual(x, x), x), out)


def test_a_torch_without_the_getters_has_kernels_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.ops.xgemm_mode.refuse_gradients(-1)
    monkeypatch.setattr(autograd, "_operators_check", False)
    monkeypatch.setattr(autograd, "_library", _registered.library(autograd.__name__))
    x = randn(3, 3)
    try:
        torch.ops.xgemm.sum(x.clone().requires_grad_())  # nothing checks
        for op in autograd.DIFFERENTIABLE:
            autograd._register(op)
        with pytest.raises(RuntimeError, match=MESSAGE):
            torch.ops.xgemm.sum(x.clone().requires_grad_())
        assert torch.equal(torch.ops.xgemm.sum(x), torch_ext.sum(x))
    finally:
        monkeypatch.undo()
        importlib.reload(autograd)
    test_dense_tensors_go_past_autograd()
