"""benchmarks.attention on the CPU: references, masks, peers' conventions, the case lists, its tables."""

import dataclasses
import importlib.machinery
import sys
import types
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from benchmarks import attention, attention_peers, common
from benchmarks.attention_peers import Problem

CPU = common.Options(device=torch.device("cpu"), quick=True)
CUDA = common.Options(device=torch.device("cuda"))
FP32, BF16, FP16 = torch.float32, torch.bfloat16, torch.float16


def inputs_of(p: Problem) -> tuple[torch.Tensor, ...]:
    return attention.case(p, FP32, CPU).make(torch.device("cpu"))


def visible(p: Problem) -> torch.Tensor:
    """Which scores are unmasked, element by element: (batch, 1, rows, keys)."""
    seen = torch.ones(p.batch, 1, p.rows, p.keys, dtype=torch.bool)
    for entry in range(p.batch):
        for i in range(p.rows):
            for j in range(p.keys):
                if p.causal:
                    last = i + p.keys - p.rows
                    seen[entry, 0, i, j] = j <= last and (not p.window or j > last - p.window)
                if p.mask == "document":
                    seen[entry, 0, i, j] = i * 8 // p.keys == j * 8 // p.keys
                if p.mask == "padding":
                    seen[entry, 0, i, j] = j < p.lengths[entry]
    return seen


@pytest.mark.parametrize(
    "p",
    [
        *(Problem(2, 6, 3, 11, 11, 8), Problem(2, 6, 3, 11, 11, 8, causal=True)),
        *(Problem(1, 4, 2, 5, 13, 8, 6, causal=True), Problem(2, 6, 3, 11, 11, 8, causal=True, window=4)),
        *(Problem(1, 2, 2, 9, 12, 8, causal=True, window=1), Problem(3, 2, 2, 16, 16, 8, mask="padding")),
        Problem(1, 2, 2, 16, 16, 8, mask="document"),
    ],
    ids=lambda p: p.name,
)
def test_reference_and_peers_mean_the_same(p: Problem) -> None:
    q, k, v, *mask = inputs_of(p)
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), visible(p), enable_gqa=p.gqa)
    case = attention.case(p, FP32, CPU)
    result, scale = case.reference(q, k, v, *mask)
    torch.testing.assert_close(result, expected)
    assert (scale >= result.abs() - 1e-12).all()
    calls = [partial(call, **p.limits) for call in (attention_peers.sdpa, attention_peers.math_backend)]
    for call in (*calls, case.contenders[0].call, case.baseline):
        torch.testing.assert_close(call(q, k, v, *mask).double(), expected, atol=1e-5, rtol=1e-5)
    if p.causal or p.mask:
        kept = visible(p).double().mean().item()
        assert p.kept == pytest.approx(kept, abs=1e-9 if p.window else 1 / p.keys), "operations of unmasked scores"
        assert case.flops == pytest.approx(2 * p.kept * p.batch * p.heads * p.rows * p.keys * (p.size + p.dv))


# ---- peers -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def fa3(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """A stand-in for FlashAttention-3's module with its layout and causal alignment; returns the list of calls."""
    calls: list[dict] = []

    def flash_attn_with_kvcache(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, causal: bool = False):
        calls.append({"q": q.shape, "k": k_cache.shape, "causal": causal})
        q, k, v = (x.transpose(1, 2).double() for x in (q, k_cache, v_cache))
        edge = torch.ones(q.shape[2], k.shape[2]).tril(k.shape[2] - q.shape[2]).bool() if causal else None
        out = F.scaled_dot_product_attention(q, k, v, edge, enable_gqa=True)
        return out.to(q_dtype).transpose(1, 2)

    q_dtype = BF16
    module = types.ModuleType(attention_peers.FA3)
    module.__spec__ = importlib.machinery.ModuleSpec(attention_peers.FA3, None)
    module.flash_attn_with_kvcache = flash_attn_with_kvcache
    monkeypatch.setitem(sys.modules, attention_peers.FA3, module)
    attention_peers.fa3_call.cache_clear()
    yield calls
    attention_peers.fa3_call.cache_clear()


@pytest.mark.parametrize("p", [Problem(2, 4, 2, 5, 24, 16, causal=True), Problem(1, 2, 2, 8, 8, 16, 8)])
def test_fa3_gets_its_own_layout(p: Problem, fa3: list[dict]) -> None:
    case = attention.case(p, BF16, CPU)
    inputs = case.make(torch.device("cpu"))
    contender = next(peer for peer in attention_peers.peers(p, BF16, CUDA) if peer.name == "fa3")
    common.check(case, contender, contender.call(*inputs), inputs, case.reference(*inputs))
    assert fa3 == [
        {"q": (p.batch, p.rows, p.heads, p.size), "k": (p.batch, p.keys, p.kv_heads, p.size), "causal": p.causal}
    ]


def test_who_takes_what(fa3: list[dict]) -> None:
    def names(p: Problem, dtype: torch.dtype, options: common.Options = CUDA) -> set[str]:
        return {contender.name for contender in attention_peers.peers(p, dtype, options)}

    plain, grouped = Problem(1, 4, 4, 64, 64, 64), Problem(1, 4, 2, 64, 64, 64)
    assert names(plain, BF16) == {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient", "fa3"}
    assert names(plain, FP16) == {"sdpa_flash", "sdpa_cudnn", "sdpa_efficient"}
    assert names(plain, FP32) == {"sdpa_efficient"}
    assert names(grouped, BF16) == {"sdpa_flash", "sdpa_cudnn", "fa3"}
    assert names(grouped, FP32) == {"sdpa_math"}, "only where no other backend serves"
    window = dataclasses.replace(plain, causal=True, window=8)  # flash takes no mask, fa3's wheel no window
    assert names(window, BF16) == {"sdpa_cudnn", "sdpa_efficient", "flex_attention"}
    every = dataclasses.replace(CUDA, set="all")
    assert "sdpa_math" in names(plain, BF16, every)
    assert names(plain, BF16, CPU) == {"sdpa_math"}
