"""csrc/attention/mma, attention by mma.sync: its plans, and its kernels in the emulator (no GPU).

On a GPU of compute capability 9.0, calls that it serves against float64; more in tests/test_attention_decode.py.
"""

import itertools
import random
from dataclasses import replace

import pytest
import torch
from attention_cases import Attend, Case, attend_fixture, decoding, every_mask, random_case, varied_case
from attention_plans import L40_BYTES, Ask, plan_fixture
from common import CSRC
from test_attention import Reference, attention, check

from torch_ext._architecture import architecture

FOLDER = CSRC / "attention"
SOURCES = [
    *(FOLDER / "mma" / name for name in ("launch.cpp", "plan.cpp", "half.cu")),
    *(FOLDER / "tiles" / name for name in ("problem.cpp", "plan.cpp", "mask_tiles.cu", "merge.cu")),
]
ROWS = [(1, 1), (5, 3), (16, 1), (3, 5), (2, 8), (1, 16)]  # positions, query heads per key head


attend = attend_fixture("attention_mma", SOURCES)


def test_every_instantiation(attend: Attend) -> None:
    rows = ((3, 2), (1, 7), (4, 4))
    cases = [
        varied_case(seed, 3, 2, 1 + seed % 2, group, sq, 150 + 60 * (seed % 3), d, d, seed % 2, mask=mask)
        for seed, (d, (sq, group), mask) in enumerate(itertools.product((64, 128, 256), rows, range(4)))
    ]
    served = {(result.split()[1], case.mask) for case, result in zip(cases, attend(cases), strict=True)}
    assert served == {(tile, mask) for tile in "012" for mask in range(4)}


def test_random_cases(attend: Attend) -> None:
    draw = random.Random(0)
    cases = []
    for _ in range(40):
        sq, group = draw.choice(ROWS)
        sk = draw.choice([1, 2, 15, 16, 17, 31, 63, 64, 65, 96, 127, 128, 129, 255, 256, 257, 513, 777])
        cases.append(random_case(draw, sq, group, sk, [1, 132]))
    attend(cases)


def test_long_keys_in_splits(attend: Attend) -> None:
    """Merged in memory; splits before and after a window are skipped."""
    cases = [
        Case(seed=1, outer=2, group=4, sk=5000, last=5000, sinks=1),
        Case(seed=2, group=2, sq=8, sk=5000, d=128, dv=128, mask=1, rows=1, sinks=2),
        Case(seed=3, outer=2, group=4, sk=9000, first=4999 - 1500, last=5000, sinks=2, softcap=4),
        Case(seed=5, group=3, sq=2, sk=2100, first=700, last=701, mask=2),
        # The merge reads 8 splits and 128 columns at a time; eight warps share a row of many splits.
        Case(seed=21, sq=2, sk=73728, d=8, dv=8, first=2100),
        Case(seed=22, group=2, sq=3, sk=5000, d=256, dv=200, sinks=1),
        Case(seed=23, group=2, sk=34000, d=16, dv=136),
    ]
    results = attend([replace(case, sm_count=132) for case in cases])
    splits = [int(result.split("splits ")[1].split(":")[0]) for result in results]
    assert splits[3] == 1 and all(n > 1 for n in splits[:3] + splits[4:]) and max(splits) > 64, splits  # few keys


plan = plan_fixture("mma")


def test_plans_cover_every_row_and_key(plan: Ask) -> None:
    sizes = [(8, 8), (64, 128), (72, 72), (192, 128), (256, 64)]
    for (d, dv), (sq, group), sk in itertools.product(sizes, ROWS, (1, 300, 9000, 65536)):
        p = plan(sq, sk, d, dv, batches=3, group=group)
        assert p["head_size"] >= d and p["value_size"] >= dv
        # One CTA computes all rows of a key head, so that keys and values are read once.
        assert p["packed"] == group and p["row_tiles"] == 1 and p["tiles"] == 3
        assert p["partial_rows"] == sq * group <= 16
        assert p["ctas"] == 3 * p["splits"] and not p["shares_items"]
        assert (p["splits"] - 1) * p["split_keys"] < sk <= p["splits"] * p["split_keys"]


def test_splits_fill_the_gpu(plan: Ask) -> None:
    """On 132 SMs, two CTAs at a time each: no splits where tiles keep memory busy, one CTA an SM where they do not."""
    for d in (64, 128, 256):
        for batches in (1, 2, 5, 16, 50, 80):
            p = plan(1, 16384, d, batches=batches, group=4)
            assert 90 <= p["ctas"] <= 264 and p["alone"] == (p["ctas"] <= 132), (d, batches, p)
        for batches in (120, 132, 200, 264, 5000):
            assert plan(1, 4096, d, batches=batches, group=4)["splits"] == 1, (d, batches)
        assert plan(1, 100, d)["splits"] == 1
        # A word has a bit for each tile of keys of a split.
        assert plan(1, 16384, d, batches=5000, masked=True)["split_keys"] <= 32 * p["keys"]


def test_two_ctas_per_sm(plan: Ask) -> None:
    """An H200's SM has 228 KB, and each CTA reserves 1 KB more than it uses."""
    for d in (64, 128, 256):
        assert 2 * (plan(16, 1000, d)["shared_bytes"] + 1024) <= 228 * 1024


def test_what_it_does_not_take(plan: Ask) -> None:
    assert plan(17, 64) is None
    assert plan(1, 64, group=17) is None
    assert plan(1, 64, 257) is None
    for d in (64, 128, 256):  # a mask's bits take shared memory, too
        assert plan(1, 64, d, shared_bytes=L40_BYTES) is not None
        assert plan(1, 64, d, masked=True) is not None
        assert plan(1, 64, d, masked=True, shared_bytes=L40_BYTES) is None


many = attend_fixture("attention_many_rows", SOURCES)
HEAD_SIZES = [(64, 64), (96, 96), (128, 128), (192, 128), (256, 256), (576, 256)]


def test_every_tile_of_many_rows(many: Attend) -> None:
    assert {int(result.split()[1]) for result in many(every_mask(HEAD_SIZES))} == set(range(7))


def test_edges_of_many_rows(many: Attend) -> None:
    """Causal from either end, windows, rows without keys; heads that share keys; capped scores, sinks."""
    limits = [{"last": 1}, {"last": 31}, {"first": -70, "last": 30}, {"first": 40}, {"first": -20, "last": -10}]
    cases = [
        Case(seed, 3, 2, 1, group, sq, sk, d, d - 8, seed % 2, **limit, softcap=seed % 2 * 4.0, sinks=seed % 3)
        for seed, ((group, sq, sk), d, limit) in enumerate(
            (lengths, d, limit)
            for lengths in ((1, 193, 161), (3, 50, 70), (5, 9, 300), (16, 20, 64))
            for d, limit in zip((64, 128, 96, 40, 256), limits, strict=True)
        )
    ]
    many(cases)


def test_random_cases_of_many_rows(many: Attend) -> None:
    draw = random.Random(0)
    cases = []
    for _ in range(24):
        sq = draw.choice([1, 2, 7, 16, 17, 63, 64, 65, 127, 128, 129, 193, 257])
        group = draw.choice([1, 2, 3, 4, 7, 16] if sq <= 17 else [1, 2, 4])
        sk = draw.choice([1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 513])
        cases.append(random_case(draw, sq, group, sk, [1, 2, 132]))
    many(cases)


def test_splits_of_many_rows(many: Attend) -> None:
    cases = [
        Case(seed=1, sm_count=132, outer=2, group=4, sq=5, sk=1500, d=64, last=1500, sinks=1),
        Case(seed=2, sm_count=132, group=2, sq=20, sk=1100, d=128, dv=104, mask=1, rows=1, sinks=2),
        Case(seed=3, sm_count=132, group=3, sq=30, sk=4500, d=32, dv=96, first=2300, last=3200, softcap=4),
    ]
    splits = [int(result.split("splits ")[1].split(":")[0]) for result in many(cases)]
    assert min(splits) > 1, splits


plan_many = plan_fixture("many_rows", batches=3)


def test_plans_of_many_rows(plan_many: Ask) -> None:
    for d, dv in [(8, 8), (64, 128), (80, 80), (192, 128), (256, 64)]:
        for sq, group in [(1, 1), (1, 12), (40, 3), (129, 1), (1000, 4), (5000, 1)]:
            p = plan_many(sq, 9000, d, dv, group=group)
            heads = 3 * group // p["packed"]
            assert p["row_tiles"] * p["tile_rows"] >= sq * p["packed"] > (p["row_tiles"] - 1) * p["tile_rows"]
            assert p["tiles"] == heads * p["row_tiles"] and p["ctas"] == p["items"] == p["tiles"] * p["splits"]
            assert p["through_memory"] == (p["splits"] > 1)
            assert p["shared_bytes"] <= L40_BYTES
    # Query heads share a tile if one head's rows leave it empty, whatever their number.
    few, many = (plan_many(sq, 500, 64, group=3) for sq in (40, 4000))
    assert (few["packed"], few["tile_rows"], many["packed"]) == (3, 126, 1)
    assert L40_BYTES < plan_many(64, 500, 576, 256)["shared_bytes"] <= 227 << 10
    assert plan_many(64, 500, 577, 8) is None
    # The order of additions does not depend on the number of rows.
    for d in (64, 128, 256):
        rows = ((1, 1), (1, 8), (100, 1), (5000, 1))
        plans = [plan_many(sq, 70000, d, group=group, batch_invariant=True) for sq, group in rows]
        assert {(p["tile"], p["splits"]) for p in plans} == {(plans[0]["tile"], 1)}


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masks_of_any_strides(dtype: torch.dtype) -> None:
    """Of each row, head or batch; columns apart, unaligned or not; whole tiles of keys hidden from all rows."""
    for sk, d in [(700, 64), (5000, 128), (3001, 256)]:
        q, k, v = decoding(dtype, 3, 4, sk, d)
        seen = torch.rand(2, 8, 3, 2 * sk + 1, device="cuda") < 0.6
        seen[..., 300:500] = False
        seen[1, 0, 1] = False  # a row that sees nothing
        shared = seen[:, :1, :1, :sk], seen[:1, :, :1, 1::2]
        for mask in (seen[..., :sk], seen[..., 1 : sk + 1], seen[..., ::2][..., :sk], *shared):
            check(q, k, v, attn_mask=mask, enable_gqa=True)
            added = torch.zeros(mask.shape, dtype=dtype, device="cuda").masked_fill(~mask, -torch.inf)
            check(q, k, v, attn_mask=added, enable_gqa=True)
            check(q, k, v, attn_mask=added.transpose(-1, -2).contiguous().transpose(-1, -2), enable_gqa=True)


@pytest.mark.cuda
def test_only_the_output_is_rounded_to_bf16() -> None:
    """Up to 8 rows: weights in two parts, with a mask where 99 KB of shared memory are not all that a CTA can have."""
    large = architecture(torch.device("cuda")) in [(8, 0), (9, 0), (10, 0)]
    for sq, group, sk, d in [(1, 4, 1000, 128), (2, 4, 9000, 64), (1, 8, 700, 256), (1, 1, 20000, 128)]:
        q, k, v = decoding(torch.bfloat16, sq, group, sk, d)
        for mask in (None, torch.rand(sq, sk, device="cuda") < 0.5)[: 1 + large]:
            exact = Reference(q, k, v, attn_mask=mask, enable_gqa=True).output
            error = (attention(q, k, v, attn_mask=mask, enable_gqa=True).double() - exact).norm()
            assert error < 1.05 * (exact.bfloat16().double() - exact).norm()


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_values(dtype: torch.dtype, bad: float) -> None:
    for sq, group in [(1, 4), (3, 5)]:
        q, k, v = decoding(dtype, sq, group, 900, 64)
        v[..., 3, 2] = v[..., 700, 5] = bad
        output = attention(q, k, v, enable_gqa=True)
        expected = Reference(q, k, v, enable_gqa=True).output
        for test in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(test(output), test(expected)), test
