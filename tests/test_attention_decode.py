"""csrc/attention/decode, fp32 attention of few rows: its plan.

On a GPU, calls against float64 and against the tiles on CUDA cores that take other calls.
"""

import itertools

import pytest
import torch
from attention_cases import decoding
from attention_plans import L40_BYTES, Ask, plan_fixture
from common import randn
from test_attention import attention_lse, check

HEAD_SIZES = [64, 128, 256]
# Positions, query heads per key head.
ROWS = [(1, 1), (1, 4), (3, 2), (1, 8), (2, 8), (4, 3), (5, 3), (3, 5), (16, 1), (1, 16), (1, 32), (48, 1)]


plan = plan_fixture("decode")


def test_plans_cover_every_row_and_key(plan: Ask) -> None:
    sizes, counts = [(1, 1), (64, 64), (64, 128), (72, 65), (192, 128), (256, 1)], (1, 4, 5, 8, 9, 16, 17, 32, 48)
    for (d, dv), rows, sk in itertools.product(sizes, counts, (1, 300, 9000, 65536, 2**31 - 2000)):
        p = plan(rows, sk, d, dv, batches=3)
        assert p["head_size"] >= max(d, dv) > p["head_size"] // 2 or p["head_size"] == 64
        assert (p["row_tiles"] - 1) * p["rows"] < rows <= p["row_tiles"] * p["rows"]
        assert p["row_tiles"] == 1 or rows > 16
        assert (p["splits"] - 1) * p["split_keys"] < sk <= p["splits"] * p["split_keys"]
        assert p["ctas"] == 3 * p["splits"] * p["row_tiles"]
        assert p["partial_bytes"] == (4 * 3 * rows * p["splits"] * (p["head_size"] + 2) if p["splits"] > 1 else 0)
        # A step lies in one split; a full split has equally many steps for each of four warps.
        assert p["split_keys"] % (4 * p["keys"]) == 0


def test_the_order_of_additions_depends_on_keys_and_head_sizes_alone(plan: Ask) -> None:
    for sk in (1, 1000, 5000, 65536, 10**6):
        for d in HEAD_SIZES:
            found = {
                (p["head_size"], p["keys"], p["split_keys"])
                for batches in (1, 1000)
                for rows in (1, 5, 16, 48)
                for first in (0, sk // 2)
                if (p := plan(rows, sk, d, batches=batches, key_begin=first, key_end=sk))
            }
            assert len(found) == 1, (sk, d, found)


def test_windows_leave_splits_out(plan: Ask) -> None:
    p = plan(1, 9000, key_begin=5000, key_end=6000)
    assert (p["split_keys"], p["first_split"], p["splits"]) == (512, 9, 3)
    assert plan(1, 9000, key_end=0)["splits"] == 1


def test_decoding_fills_the_gpu(plan: Ask) -> None:
    """8 key heads of one sequence on 132 SMs."""
    for sk, least in ((4096, 128), (8192, 128), (16384, 256), (65536, 1024)):
        assert plan(4, sk, batches=8)["ctas"] == least


def test_ctas_fit_an_sm(plan: Ask) -> None:
    """An H200's SM has 228 KB, and each CTA reserves 1 KB more than it uses; one CTA fits a limit of 99 KB."""
    for d in HEAD_SIZES:
        for rows in (4, 8, 16):
            p = plan(rows, 1000, d)
            assert p["ctas_an_sm"] * (p["shared_bytes"] + 1024) <= 228 * 1024, p
            assert p["ctas_an_sm"] * 64 * 1024 >= 128 * 1024  # slots of keys and values
            assert p["shared_bytes"] <= L40_BYTES


def test_what_it_does_not_take(plan: Ask) -> None:
    for sizes in ((49, 64), (1, 64, 257), (1, 0), (1, 64, 0), (1, 64, 64, 0)):
        assert plan(*sizes) is None, sizes
    assert plan(1, 64, fp64=True) is None and plan(1, 64, shared_bytes=48 * 1024) is None


# ---- on a GPU: float32 by this kernel, half precision by attention/mma ---------------------------------------------

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.cuda
@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", DTYPES)
def test_one_small_case_of_every_kernel(dtype: torch.dtype) -> None:
    for d in (40, 128, 256):
        for sq, group in ((1, 3), (1, 8), (4, 3), (3, 4)):
            q, k, v = decoding(dtype, sq, group, 300, d)
            seen = torch.rand(2, 1, sq, 300, device="cuda") < 0.7
            added = torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, -torch.inf)
            for mask in (None, seen, added):
                check(q, k, v, attn_mask=mask, enable_gqa=True)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("sq", "group"), ROWS)
def test_rows(dtype: torch.dtype, sq: int, group: int) -> None:
    sizes = [(1, 64, 64), (129, 80, 80), (1000, 128, 128), (5003, 64, 128), (20011, 128, 128), (700, 256, 192)]
    for sk, d, dv in sizes:
        args = decoding(dtype, sq, group, sk, d, dv)
        check(*args, enable_gqa=True)
        check(*args, enable_gqa=True, is_causal=True, causal_alignment="bottom_right")
        check(*args, enable_gqa=True, window=(100, 0), causal_alignment="bottom_right", softcap=20.0)
        check(*args, enable_gqa=True, sinks=randn(2 * group, device="cuda"))
        check(*args, enable_gqa=True, attn_mask=torch.rand(sq, sk, device="cuda") < 0.5)
        for mask_dtype in {dtype, torch.float32}:  # torch gives NaN with the latter, or refuses it
            mask = randn(2, 1, 1, sk, dtype=mask_dtype, device="cuda")
            check(*args, enable_gqa=True, attn_mask=mask, half_peer=mask_dtype == dtype)


@pytest.mark.cuda
def test_the_tiles_of_other_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """XGEMM_ATTENTION_PLAN=simt gives the same results in another order of additions."""
    for sk in (300, 9000):
        args = decoding(torch.float32, 1, 4, sk, 128)
        got = attention_lse(*args, enable_gqa=True)
        monkeypatch.setenv("XGEMM_ATTENTION_PLAN", "simt")
        for ours, theirs in zip(got, attention_lse(*args, enable_gqa=True), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
        check(*args, enable_gqa=True)
        monkeypatch.delenv("XGEMM_ATTENTION_PLAN")
