"""FlopCounterMode counts the operators' FLOP as it counts torch's."""

import subprocess
import sys

import pytest
import torch
from common import randn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import torch_ext


def flops(call, *args: object, **kwargs: object) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call(*args, **kwargs)
    return counter.get_total_flops()


def attention_of_products(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return (q @ k.mT).softmax(-1) @ v


def by_heads(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    q, k = q.transpose(0, 1), k.transpose(0, 1)
    return attention_of_products(q, k, k)


def int32(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


CASES = [
    *((torch_ext.matmul, torch.matmul, [a, b]) for a, b in [
        ((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((4, 1, 5, 7), (2, 7, 3)), ((7,), (2, 7, 3)),
    ]),
    (torch_ext.matmul, lambda a, b: a @ b[:, None], [(5, 7), (7,)]),  # torch counts nothing for aten.mv
    (torch_ext.addmm, torch.addmm, [(3,), (5, 7), (7, 3)]),
    (torch_ext.linear, F.linear, [(2, 5, 7), (3, 7), (3,)]),
    (torch_ext.linear, F.linear, [(5, 7), (3, 7)]),
    (lambda x, w: torch_ext.linear(x, torch_ext.prepare(w)), F.linear, [(5, 7), (3, 7)]),
    (torch_ext.gated_linear, lambda x, g, u: F.linear(x, g) * F.linear(x, u), [(2, 5, 7), (3, 7), (3, 7)]),
    (torch_ext.attention, attention_of_products, [(2, 3, 5, 8), (2, 3, 6, 8), (2, 3, 6, 4)]),
    (torch_ext.attention, attention_of_products, [(3, 5, 8), (3, 6, 8), (3, 6, 8)]),
    (
        lambda q, k, v: torch_ext.attention(q, k, v, enable_gqa=True, is_causal=True, return_lse=True),
        lambda q, k, v: attention_of_products(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)),
        [(2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 4)],
    ),
    (
        lambda q, k: torch_ext.attention_varlen(q, k, k, int32(0, 2, 5), int32(0, 3, 7), 3, 4),
        lambda q, k: [by_heads(q[:2], k[:3]), by_heads(q[2:], k[3:])],
        [(5, 4, 8), (7, 4, 8)],
    ),
    (
        lambda q, k: torch_ext.attention_varlen(
            q, k, k, int32(0, 2, 5), None, 3, 4, seqused_k=int32(3, 4), block_table=int32(1, 0)[:, None]
        ),
        lambda q, k: [by_heads(q[:2], k[1, :3]), by_heads(q[2:], k[0])],
        [(5, 4, 8), (2, 4, 4, 8)],
    ),
    (
        lambda q, k: torch_ext.attention_with_cache(q, k, k, int32(1, 3), key=q, value=q),
        lambda q, k: [by_heads(q[0], k[0, :3]), by_heads(q[1], k[1, :5])],
        [(2, 2, 4, 8), (2, 6, 4, 8)],
    ),
    (lambda x: torch_ext.softmax(torch_ext.sum(x, 0), -1), lambda x: x, [(3, 4, 5)]),
]  # fmt: skip


@pytest.mark.parametrize(("ours", "torchs", "shapes"), CASES)
def test_counts_what_torch_counts(ours, torchs, shapes: list[tuple[int, ...]]) -> None:
    tensors = [randn(*shape) for shape in shapes]
    assert flops(ours, *tensors) == flops(torchs, *tensors)


def test_counts_of_a_replaced_model() -> None:
    model = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    torch_ext.replace(model)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(randn(2, 5, 16))
    counts = {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}
    assert set(counts) == {"xgemm.linear", "xgemm.attention"}
    # qkv and out projections, two layers of the feed-forward part, scores and weighted values
    assert sum(counts.values()) == 2 * 10 * (16 * 48 + 16 * 16 + 2 * 16 * 32) + 2 * 2 * 2 * 4 * 5 * 5 * 4


@pytest.mark.parametrize("first", ["torch_ext", "torch.utils.flop_counter"])
def test_registered_whichever_is_imported_first(first: str) -> None:
    program = f"""
import sys, {first}
before = "torch_ext.flops" in sys.modules
import torch, torch.utils.flop_counter, torch_ext
assert torch.ops.xgemm.matmul in torch.utils.flop_counter.flop_registry and not before
"""
    subprocess.run([sys.executable, "-c", program], check=True)
