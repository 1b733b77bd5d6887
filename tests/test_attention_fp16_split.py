"""csrc/attention/fp16_split, fp32 attention on tensor cores: in the emulator, and on a GPU."""

import dataclasses
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import attention_cases
import pytest
import torch
from attention_cases import Attend, attend_fixture, choose
from common import CSRC, on_hopper
from test_attention import Reference

import torch_ext

FOLDER = CSRC / "attention"
SOURCES = [
    *(FOLDER / "fp16_split" / name for name in ("launch.cpp", "kernel.cu", "mma_kernel.cu", "split.cu", "merge.cu")),
    *(FOLDER / "tiles" / name for name in ("problem.cpp", "plan.cpp", "mask_tiles.cu")),
    *(FOLDER / "simt" / name for name in ("plan.cpp", "launch.cu", "fp32.cu")),
]
NORMAL, PEAKED, LARGE, POSITIVE, WIDE, OUTLIERS, EQUAL, SCALED = range(8)
NAN_KEY, INF_SCORE, INF_VALUE, WIDE_COLUMN, LOWEST_MASK = range(1, 6)


@dataclass
class Case(attention_cases.Case):
    """A line that programs/attention_fp16_split.cpp reads."""

    sm_count: int = 3
    sq: int = 130
    sk: int = 300
    data: int = NORMAL
    parts: int = 2
    portable: int = 0


@dataclass
class Served:
    tile: int
    splits: int
    failed: int  # key heads that were left to CUDA cores
    error: float  # Frobenius norm over that of plain fp32 arithmetic


# The emulator also checks that scales are read before a copy overwrites them.
answers = attend_fixture("attention_fp16_split", SOURCES, reads=True)


@pytest.fixture
def attend(answers: Attend) -> Callable[[list[Case]], list[Served]]:
    def run(cases: list[Case]) -> list[Served]:
        words = (answer.replace(":", "").split() for answer in answers(cases))
        return [Served(int(w[1]), int(w[5]), int(w[7]), float(w[9])) for w in words]

    return run


def test_as_accurate_as_plain_fp32(attend: Callable[[list[Case]], list[Served]]) -> None:
    sizes = [(NORMAL, 64), (NORMAL, 128), (NORMAL, 256), (PEAKED, 64), (LARGE, 128), (POSITIVE, 256), (SCALED, 128)]
    cases = [Case(seed=d + data, d=d, dv=d, sk=600, data=data) for data, d in sizes]
    served = attend([*cases, Case(sk=2000, data=EQUAL)])
    assert not any(s.failed for s in served) and max(s.error for s in served) < 1, served


def test_heads_that_the_parts_cannot_represent_go_to_cuda_cores(attend: Callable[[list[Case]], list[Served]]) -> None:
    """Only such heads; if all are, the error is plain fp32's."""
    wide = attend([Case(seed=1, data=WIDE), Case(seed=2, d=128, dv=128, data=OUTLIERS)])
    assert all(served.failed == 1 and 0.5 < served.error < 1.1 for served in wide)
    specials = (NAN_KEY, INF_SCORE, INF_VALUE, WIDE_COLUMN)
    cases = [Case(seed=s, outer=2, group=2, sq=150, bshd=1, special=s, parts=n) for n in (2, 1) for s in specials]
    assert [served.failed for served in attend(cases)] == [1] * len(cases)


def test_one_part_is_as_accurate_as_tf32(attend: Callable[[list[Case]], list[Served]]) -> None:
    sizes = dict(zip((NORMAL, PEAKED, LARGE, POSITIVE, WIDE, OUTLIERS, EQUAL), 3 * (64, 128, 256), strict=False))
    served = attend([Case(data, sk=500, d=d, dv=d, data=data, parts=1) for data, d in sizes.items()])
    assert not any(s.failed for s in served) and max(s.error for s in served) < 1.05, served


def test_every_instantiation_of_one_part(attend: Callable[[list[Case]], list[Served]]) -> None:
    sizes = itertools.product(((64, 40), (100, 128), (256, 133)), (0, 1, 2))
    cases = [
        Case(seed, 3, 1, 2, 2, 130, 150, d, dv, seed % 2, mask=mask, heads=seed // 2 % 2, rows=seed % 2, parts=1)
        for seed, ((d, dv), mask) in enumerate(sizes)
    ]
    cases.append(Case(sm_count=132, sq=70, sk=4200, dv=50, last=4131, parts=1))
    served = attend(cases)
    assert [s.tile for s in served] == [3, 3, 4, 5, 5, 5, 6, 6, 6, 3] and served[-1].splits > 1
    assert not any(s.failed for s in served)


def test_every_instantiation(attend: Callable[[list[Case]], list[Served]]) -> None:
    full = (64, 130, 150), (128, 65, 300), (256, 130, 150)
    sizes = [(d, d, sq, sk, mask) for (d, sq, sk), mask in itertools.product(full, (0, 1, 2))]
    sizes += [(17, 33, 65, 300, 0), (40, 72, 130, 150, 1), (200, 133, 65, 300, 2)]
    cases = [
        Case(seed, 3, 1, 1 + seed % 2, 2, sq, sk, d, dv, seed % 2, mask=mask, heads=seed // 2 % 2, rows=seed // 4 % 2)
        for seed, (d, dv, sq, sk, mask) in enumerate(sizes)
    ]
    served = attend([*cases, Case(mask=2, rows=1, special=LOWEST_MASK), Case(sq=70, sk=1)])
    assert {s.tile for s in served} == {0, 1, 2} and not any(s.failed for s in served)


def test_random_cases(attend: Callable[[list[Case]], list[Served]]) -> None:
    draw = random.Random(0)
    cases = []
    for _ in range(10):
        d = draw.choice([8, 16, 33, 40, 64, 72, 80, 96, 128, 136, 256])
        sq = draw.choice([65, 127, 128, 129, 191, 257])
        sk = draw.choice([1, 2, 63, 127, 128, 129, 255, 256, 257, 513, 777])
        mask = draw.choice([0, 0, 1, 2])
        causal = 0 if mask else draw.choice([0, 1])
        of_mask = {"heads": [0, 1], "rows": [0, 1]} if mask else {"special": [0, NAN_KEY, INF_VALUE]}
        chosen = choose(
            draw, **of_mask, sm_count=[1, 2, 5, 132], outer=[1, 2], inner=[1, 2, 3], group=[1, 2, 3, 4],
            dv=[d, d, 64, 128], bshd=[0, 1], last=[1, sk - sq + 1] if causal else [1 << 20], parts=[2, 2, 1],
            data=[NORMAL, NORMAL, PEAKED, POSITIVE],
        )  # fmt: skip
        if max(d, chosen["dv"]) <= 128 and chosen["parts"] == 2:
            chosen["portable"] = draw.choice([0, 1])
        cases.append(Case(draw.randrange(1000), sq=sq, sk=sk, d=d, mask=mask, **chosen))
    attend(cases)


def test_keys_in_splits(attend: Callable[[list[Case]], list[Served]]) -> None:
    cases = [
        Case(seed=5, sm_count=132, group=2, sq=40, sk=4200, bshd=1, last=4161),
        Case(seed=6, sm_count=132, sq=140, sk=4200, d=128, dv=100, mask=2, rows=1),
    ]
    assert all(served.splits > 1 for served in attend(cases))


def test_by_mma_sync(attend: Callable[[list[Case]], list[Served]]) -> None:
    """Every instantiation, splits, a tile's edges, and the heads that are left to CUDA cores."""
    sizes = [(64, 64, 70, 150), (17, 33, 65, 130), (128, 128, 65, 200), (100, 72, 70, 150)]
    cases = [
        Case(
            seed,
            3,
            1 + seed % 2,
            1,
            1 + seed % 3,
            sq,
            sk,
            d,
            dv,
            seed % 2,
            mask=mask,
            heads=seed // 2 % 2,
            rows=seed // 4 % 2,
        )
        for seed, ((d, dv, sq, sk), mask) in enumerate(itertools.product(sizes, (0, 1, 2)))
    ]
    cases += [Case(seed=d, d=d, dv=d, sq=191, sk=257, last=67, group=2) for d in (64, 128)]
    cases.append(Case(d=128, dv=128, sq=250, sk=186, last=-63))  # a tile of rows without a key
    cases += [Case(mask=2, rows=1, special=LOWEST_MASK), Case(sq=70, sk=1), Case(sq=70, sk=1200, d=128, sm_count=132)]
    cases += [Case(seed=s, outer=2, group=2, sq=70, bshd=1, special=s) for s in (NAN_KEY, INF_SCORE, INF_VALUE)]
    served = attend([dataclasses.replace(case, portable=1) for case in cases])
    assert [s.tile for s in served[:12]] == [0] * 6 + [1, 2, 2] * 2
    assert max(s.error for s, case in zip(served, cases, strict=True) if case.d >= 64 and case.sk > 1) < 1, served
    assert served[-4].splits > 1
    assert [s.failed for s in served] == [0] * (len(served) - 3) + [1] * 3


@on_hopper
@pytest.mark.sanitize
@pytest.mark.parametrize("plan", ["", "mma"])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": torch.bool}, {"attn_mask": torch.float32}])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_on_a_gpu(monkeypatch: pytest.MonkeyPatch, d: int, options: dict, plan: str) -> None:
    """As accurate as the kernel on CUDA cores, which computes only the head with a NaN."""
    q, k, v = (torch.randn(2, 2, 300, d, device="cuda") for _ in range(3))
    k[1, 1, 100, 3] = math.nan
    if dtype := options.get("attn_mask"):
        seen = torch.rand(2, 1, 300, 300, device="cuda") < 0.7
        options = {"attn_mask": seen if dtype is torch.bool else torch.where(seen, 0.5, -math.inf)}
    monkeypatch.setenv("XGEMM_ATTENTION_PLAN", "simt")
    plain = torch_ext.attention(q, k, v, **options)
    monkeypatch.setenv("XGEMM_ATTENTION_PLAN", plan)
    parts = torch_ext.attention(q, k, v, **options)
    assert torch.equal(parts[1, 1].nan_to_num(7), plain[1, 1].nan_to_num(7))
    assert (plan == "mma" and d == 256) == torch.equal(parts.nan_to_num(7), plain.nan_to_num(7))
    expected = Reference(q, k, v, **options).output.flatten(0, 1)[:3]
    errors = [(y.flatten(0, 1)[:3].double() - expected).norm() for y in (parts, plain)]
    assert 0 < errors[0] < 1.1 * errors[1]


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    mantissa, exponent = torch.frexp(x.double())
    return torch.ldexp((mantissa * 2**11).round(), exponent - 11)


@on_hopper
@pytest.mark.sanitize
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("mask", [None, torch.bool, torch.float32])
def test_one_part_on_a_gpu(d: int, mask: torch.dtype | None) -> None:
    """TF32's error, except in the head with a NaN, which CUDA cores compute."""
    q, k, v = (torch.randn(2, 2, 300, d, device="cuda") for _ in range(3))
    k[1, 1, 100, 3] = math.nan
    seen = torch.rand(300, 300, device="cuda") < 0.7
    options = {} if mask is None else {"attn_mask": seen if mask is torch.bool else torch.where(seen, 0.5, -math.inf)}
    exact, ieee = (torch_ext.attention(q, k, v, precision=precision, **options) for precision in ("highest", "ieee"))
    one = torch_ext.attention(q, k, v, precision="high", **options)
    for _ in range(20):
        assert torch.equal(torch_ext.attention(q, k, v, precision="medium", **options)[0], one[0])
    assert torch.equal(torch_ext.attention(q, k, v, precision="highest", **options)[0], exact[0])
    assert torch.equal(one[1, 1].nan_to_num(7), ieee[1, 1].nan_to_num(7))
    heads = [x.flatten(0, 1)[:3].double() for x in (q, k, v)]

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rounded: Callable) -> torch.Tensor:
        scores = rounded(q) @ rounded(k).mT / math.sqrt(d)
        if mask is not None:
            scores = scores.masked_fill(~seen, -math.inf)
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return rounded(weights) @ rounded(v) / weights.sum(-1, keepdim=True)

    expected = attend(*heads, lambda x: x)
    tf32 = (attend(*heads, to_tf32) - expected).norm()
    assert 0.5 * tf32 < (one.flatten(0, 1)[:3] - expected).norm() < 1.1 * tf32
