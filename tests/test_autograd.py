"""Forward only: a gradient is refused, never lost in silence."""

import pytest
import torch
from calls import CALLS, DIFFERENTIABLE, Call, name
from common import randn
from torch.autograd import forward_ad

import torch_ext

MESSAGE = r"^xgemm::\w+: has no backward, got an input that requires grad; call it under torch.no_grad\(\) or"


def ways(call: Call):
    """The raw op, its packet as users spell it, and the function."""
    public = getattr(torch_ext, call.op.removesuffix("_lse"))
    lse = {"return_lse": True} if call.op.endswith("_lse") else {}
    return [call.raw, getattr(torch.ops.xgemm, call.op), lambda *a, **k: public(*a, **k, **lse)]


def with_grad(args: tuple, index: int) -> tuple:
    return tuple(a.clone().requires_grad_() if i == index else a for i, a in enumerate(args))


@pytest.mark.parametrize("call", DIFFERENTIABLE, ids=name)
def test_any_input_that_requires_grad_is_refused(call: Call, device: torch.device) -> None:
    args = call.args(device, torch.float32)
    tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]
    for way in ways(call):
        for index in tensors:
            with pytest.raises(RuntimeError, match=MESSAGE) as caught:
                way(*with_grad(args, index), **call.kwargs)
            assert "\n" not in str(caught.value) and f"xgemm::{call.op}:" in str(caught.value)
            for context in (torch.no_grad, torch.inference_mode):
                with context():
                    torch.testing.assert_close(
                        way(*with_grad(args, index), **call.kwargs),
                        call.torch_op(*args, **call.kwargs),
                        rtol=1e-4,
                        atol=1e-5,
                    )
        way(*args, **call.kwargs)  # grad mode alone is no error, and the process still works


@pytest.mark.parametrize(
    ("op", "kwarg"),
    [
        ("linear", "bias"),
        ("linear", "residual"),
        ("gated_linear", "bias_gate"),
        ("gated_linear", "bias_up"),
        ("attention", "attn_mask"),
        ("attention_lse", "attn_mask"),
        ("attention", "sinks"),
        ("attention_lse", "sinks"),
    ],
)
def test_keyword_tensors_are_checked_too(op: str, kwarg: str) -> None:
    shapes = {
        "linear": [(5, 5), (5, 5)],
        "gated_linear": [(5, 5)] * 3,
        "attention": [(1, 1, 5, 5)] * 3,
        "attention_lse": [(1, 1, 5, 5)] * 3,
    }[op]
    extra = randn(5) if kwarg.startswith("bias") else randn(5, 5)
    for way in (getattr(torch.ops.xgemm, op), getattr(torch_ext, op.removesuffix("_lse"))):
        with pytest.raises(RuntimeError, match=MESSAGE):
            way(*(randn(*s) for s in shapes), **{kwarg: extra.requires_grad_()})


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


@pytest.mark.parametrize("call", CALLS, ids=name)
def test_results_are_detached(call: Call) -> None:
    out = call.raw(*call.args(torch.device("cpu"), torch.float32), **call.kwargs)
    for t in out if isinstance(out, tuple) else (out,):
        assert not t.requires_grad and t.grad_fn is None and t.is_contiguous()
