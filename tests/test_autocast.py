"""Autocast gives each operator the result dtype that it gives torch's own."""

import pytest
import torch
from calls import CALLS, Call, name
from common import randn, tuple_of

import torch_ext

WITH_LSE = {"attention_lse", "attention_varlen_lse", "attention_with_cache_lse"}
CACHE = {"attention_with_cache", "attention_with_cache_lse"}
LOWER = {"matmul", "addmm", "linear", "gated_linear", "attention", "attention_varlen"} | WITH_LSE | CACHE


def dtypes(result) -> list[torch.dtype]:
    return [t.dtype for t in tuple_of(result)]


@pytest.mark.parametrize("to", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("call", CALLS, ids=name)
def test_result_dtypes_are_torchs(call: Call, to: torch.dtype, device: torch.device) -> None:
    if call.op in WITH_LSE | CACHE:
        pytest.skip("torch has no such op; test_attention_lse and test_caches_are_not_cast have it")
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        args = call.args(device, dtype)
        with torch.no_grad(), torch.autocast(device.type, to):
            expected = call.torch_op(*args, **call.kwargs)
            for way in (call.raw, call.function):
                ours = way(*args, **call.kwargs)
                assert dtypes(ours) == dtypes(expected), dtype
                if call.op not in ("argmax", "argmin"):
                    torch.testing.assert_close(ours, expected, rtol=2e-2, atol=3e-2)
        with torch.no_grad(), torch.autocast(device.type, to, enabled=False):
            assert dtypes(call.raw(*args, **call.kwargs))[0] in (dtype, torch.int64)


def test_attention_lse(device: torch.device) -> None:
    q = randn(1, 2, 5, 8, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        assert dtypes(torch_ext.attention(q, q, q, return_lse=True)) == [torch.bfloat16, torch.float32]
        q = q.double()
        assert dtypes(torch_ext.attention(q, q, q, return_lse=True)) == [torch.float64, torch.float64]


def test_caches_are_not_cast(device: torch.device) -> None:
    """What is appended must not go to a copy: the other tensors are cast to the caches' dtype."""
    q = randn(2, 1, 2, 8, device=device)
    keys, values = (randn(2, 4, 2, 8, dtype=torch.bfloat16, device=device) for _ in "kv")
    lengths = torch.tensor([2, 0], dtype=torch.int32, device=device)
    with torch.autocast(device.type, torch.float16):
        results = torch_ext.attention_with_cache(q, keys, values, lengths, key=q, value=q, return_lse=True)
    assert dtypes(results) == [torch.bfloat16, torch.float32]
    for cache in (keys, values):
        assert torch.equal(cache[[0, 1], lengths.long()], q[:, 0].bfloat16())


@pytest.mark.parametrize("options", [{}, {"is_causal": True, "causal_alignment": "bottom_right"}])
def test_cpu_attention_of_half_precision_is_the_same_inside(options: dict) -> None:
    """Autocast must not affect the fp32 computation inside the operator."""
    q, k, v = (randn(2, 2, n, 64, dtype=torch.bfloat16) for n in (40, 70, 70))
    expected = torch.ops.xgemm.attention_lse(q, k, v, **options)
    with torch.autocast("cpu", torch.bfloat16):
        inside = torch.ops.xgemm.attention_lse(q, k, v, **options)
    assert all(map(torch.equal, inside, expected))


def test_mixed_inputs_meet_in_the_autocast_dtype(device: torch.device) -> None:
    x, w, bias = randn(3, 4, device=device), randn(5, 4, dtype=torch.bfloat16, device=device), randn(5, device=device)
    residual, mask = randn(3, 5, device=device), randn(3, 3, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        y = torch_ext.linear(x, w, bias, residual=residual)
        z = torch_ext.attention(x, x.bfloat16(), x, attn_mask=mask)
        masked = torch_ext.attention(x, x, x, attn_mask=mask > 0)
    assert y.dtype is z.dtype is masked.dtype is torch.bfloat16
    torch.testing.assert_close(y.float(), x @ w.float().T + bias + residual, rtol=2e-2, atol=5e-2)


def test_follows_the_dtype_of_the_moment(device: torch.device) -> None:
    a = randn(3, 3, device=device)
    for to in (torch.bfloat16, torch.float16):
        with torch.autocast(device.type, to):
            assert torch_ext.matmul(a, a).dtype is to
            with torch.autocast(device.type, enabled=False):
                assert torch_ext.matmul(a, a).dtype is torch.float32
    assert torch_ext.matmul(a, a).dtype is torch.float32


def test_explicit_dtype_wins(device: torch.device) -> None:
    x = randn(3, 4, dtype=torch.bfloat16, device=device)
    with torch.autocast(device.type, torch.bfloat16):
        for op in (torch_ext.softmax, torch_ext.log_softmax):
            assert op(x, -1, dtype=torch.float64).dtype is torch.float64
        assert torch_ext.sum(x, dtype=torch.bfloat16).dtype is torch.bfloat16


def test_gradients_are_refused_under_autocast_too(device: torch.device) -> None:
    w = randn(3, 3, device=device).requires_grad_()
    with torch.autocast(device.type, torch.bfloat16), pytest.raises(RuntimeError, match="has no backward"):
        torch.ops.xgemm.matmul(w, w)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(backend: str, device: torch.device) -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return torch_ext.softmax(torch_ext.linear(x, w), -1)

    x, w = randn(3, 4, device=device), randn(5, 4, device=device)
    ours = torch.compile(f, fullgraph=True, backend=backend)(x, w)
    torch.testing.assert_close(ours, f(x, w), rtol=0, atol=0)
    assert ours.dtype is (torch.float32 if device.type == "cuda" else torch.bfloat16)


def test_modules(device: torch.device) -> None:
    x = randn(2, 5, 8, device=device)
    heads = torch_ext.nn.MultiheadAttention(8, 2, batch_first=True, device=device).eval()
    with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
        for need_weights in (False, True):
            assert heads(x, x, x, need_weights=need_weights)[0].dtype is torch.bfloat16
        assert torch_ext.nn.Linear(8, 3, device=device)(x).dtype is torch.bfloat16


def test_every_floating_op_that_torch_lowers_is_lowered() -> None:
    for call in CALLS:
        for key in ("AutocastCPU", "AutocastCUDA"):
            has = torch._C._dispatch_has_kernel_for_dispatch_key(f"xgemm::{call.op}", key)
            if call.op in LOWER:
                assert has, (call.op, key)
            elif key == "AutocastCPU":
                assert has == (call.op == "cross_entropy"), call.op
