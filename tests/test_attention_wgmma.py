"""csrc/attention/wgmma, attention on Hopper's tensor cores: its plan, and the kernel itself in the emulator (no GPU).

On a GPU, tests/test_attention.py runs through it where it serves.
"""

import itertools
import random
from dataclasses import replace

import pytest
from attention_cases import Attend, Case, attend_fixture, choose, every_mask, random_case
from attention_plans import Ask, plan_fixture
from common import CSRC

FOLDER = CSRC / "attention"
SOURCES = [
    *(FOLDER / "wgmma" / name for name in ("launch.cpp", "bf16.cu")),
    *(FOLDER / "tiles" / name for name in ("problem.cpp", "plan.cpp", "mask_tiles.cu", "merge.cu")),
]
BY_TMA = "mask by TMA"  # printed by the program where TMA loads the mask
HEAD_SIZES = [(64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)]


attend = attend_fixture("attention_wgmma", SOURCES)


def test_every_instantiation(attend: Attend) -> None:
    cases = every_mask(HEAD_SIZES)
    cases += [  # an additive mask by TMA
        Case(d, sm_count=3, group=2, sq=130, sk=150, d=d, dv=dv, mask=2, rows=1, aligned=1) for d, dv in HEAD_SIZES
    ]
    cases += [  # the tiles of short causal rows, and of many rows that see all keys
        Case(sm_count=3, sq=130, sk=150, last=1),
        Case(sm_count=3, group=2, sq=520, sk=90, d=128, dv=128),
        *(
            Case(sm_count=3, group=2, sq=520, sk=sk, d=128, dv=128, mask=mask, rows=1, aligned=aligned)
            for sk, mask, aligned in ((250, 1, 0), (250, 2, 1), (250, 2, 0), (251, 2, 0), (250, 3, 0))
        ),
    ]
    results = attend(cases)
    assert {result.split()[1] for result in results} == {str(i) for i in range(14)}
    assert {result.split()[1] for result in results if BY_TMA in result} == {"2", "3", "5", "6", "10"}


def test_additive_masks(attend: Attend) -> None:
    """Loaded by TMA or, where TMA cannot, by warpgroups; varying by head, batch, row; packed heads, windows."""
    draw = random.Random(0)
    limits = {"none": {}, "window": {"first": -70, "last": 30}, "causal": {"last": 1}, "from the end": {"last": 400}}
    rows, keys = ((1, 193), (2, 70), (16, 10), (3, 100)), ((500, 64), (513, 96), (384, 128), (333, 200))
    cases = []
    for seed, (heads, (group, sq), (sk, d)) in enumerate(itertools.product((0, 1), rows, keys)):
        fields = choose(draw, sm_count=[1, 2, 5], inner=[1, 2], bshd=[0, 1], rows=[1, 1, 1, 0], shared=[0, 1])
        fields |= choose(draw, special=[0, 0, 3, 4] if fields["rows"] else [0], softcap=[0, 0, 0, 5], aligned=[1, 1, 0])
        fields |= limits[draw.choice(list(limits))]
        cases.append(Case(seed, group=group, sq=sq, sk=sk, d=d, dv=d, mask=2, heads=heads, **fields))
    for case, result in zip(cases, attend(cases), strict=True):
        pitch = -(-case.sk // 16) * 16 if case.aligned else case.sk
        assert (BY_TMA in result) == (case.rows == 1 and pitch % 8 == 0), (case, result)


def test_tiles_of_keys_that_a_warpgroup_does_not_see(attend: Attend) -> None:
    """Several tiles of rows for each CTA, warpgroups that see a part of the tile's keys or none."""
    limits = [(450, {"last": 1}), (200, {"last": -249}), (450, {"first": -40, "last": 1}), (130, {"last": -310})]
    attend([Case(d, sm_count=1, sq=450, sk=sk, d=d, dv=dv, **of) for d, dv in HEAD_SIZES for sk, of in limits])


def test_rows_masked_by_large_finite_numbers(attend: Attend) -> None:
    """Weights are exp of differences of numbers near -8e8: rounding either before the subtraction would show."""
    case = Case(sq=130, sk=300, mask=3, rows=1, special=4)
    attend([replace(case, seed=d, d=d, dv=d) for d in (64, 96, 128, 256)])


def test_random_cases(attend: Attend) -> None:
    draw = random.Random(0)
    cases = []
    for _ in range(30):
        sq = draw.choice([1, 2, 3, 7, 16, 63, 64, 65, 127, 128, 129, 191, 192, 193, 257])
        group = draw.choice([1, 2, 3, 4, 5, 8, 16] if sq <= 16 else [1, 2, 4])
        sk = draw.choice([1, 2, 63, 64, 65, 79, 80, 81, 127, 128, 129, 255, 256, 257, 513, 777])
        cases.append(random_case(draw, sq, group, sk, [1, 2, 5, 132]))
    attend(cases)


def test_long_keys_in_splits(attend: Attend) -> None:
    cases = [
        Case(seed=1, sm_count=132, outer=2, group=4, sq=1, sk=5000, d=64, last=5000, sinks=1),
        Case(seed=2, sm_count=132, group=2, sq=40, sk=8200, d=64, mask=1, rows=1, sinks=2),
        # Splits before and after the window are skipped.
        Case(seed=3, sm_count=132, outer=2, group=4, sq=1, sk=9000, d=64, first=3499, last=5000, sinks=2, softcap=4),
        Case(seed=4, sm_count=132, sq=130, sk=13000, d=64, first=5000, last=5100, sinks=1),
        Case(seed=5, sm_count=132, group=3, sq=2, sk=2100, d=64, first=700, last=701, mask=2),
    ]
    splits = [int(result.split("splits ")[1].split(":")[0]) for result in attend(cases)]
    assert min(splits[:4]) > 1, splits


plan = plan_fixture("tiles")


def test_batch_invariant_mode_does_not_split(plan: Ask) -> None:
    sizes = [(1, 1000, 4), (1, 65536, 1), (16, 16384, 8), (512, 16384, 2), (70, 5000, 1), (197, 197, 1)]
    sizes += [(300, 20000, 1), (512, 512, 1), (700, 16000, 1), (4096, 4096, 1)]
    for (sq, sk, group), d, causal in itertools.product(sizes, (64, 128, 256), (False, True)):
        plans = [
            plan(sq, sk, d, batches=batches, group=group, causal=causal, batch_invariant=True)
            for batches in (1, 7, 100, 5000)
        ]
        assert {(p["splits"], p["keys"]) for p in plans if p} == {(1, plans[0]["keys"])}, (sq, sk, group, d, causal)


def test_splits_end_the_last_round_sooner(plan: Ask) -> None:
    """Few tiles of rows leave SMs idle; so does a round of few CTAs."""
    assert plan(2048, 16384, batches=1)["splits"] > 4 and plan(128, 4096, batches=140)["splits"] > 1
    for batches, causal in [(132, False), (528, False), (132, True)]:
        assert plan(128, 4096, batches=batches, causal=causal)["splits"] == 1


def test_head_size_64_takes_the_tile_with_less_work(plan: Ask) -> None:
    def warpgroups(heads: int, s: int, d: int = 64, causal: bool = False) -> int:
        return plan(s, s, d, batches=heads, causal=causal)["consumers"]

    many = 1024  # heads, that is tiles for every SM
    assert [warpgroups(many, s) for s in (192, 384, 768, 1536, 2048, 16384)] == [3] * 6
    assert [warpgroups(many, s) for s in (128, 197, 256, 577, 640)] == [2] * 5  # 192 rows would be more empty
    assert warpgroups(16, 512) == 2  # 48 tiles of 192 rows leave more SMs without work than 64 of 128
    assert [warpgroups(many, s, causal=True) for s in (512, 1024)] == [2, 2]
    assert [warpgroups(many, s, causal=True) for s in (2048, 16384)] == [3, 3]
    assert warpgroups(many, 512, d=128) == 2 and warpgroups(many, 2048, d=128) == 3


def test_plans_cover_every_row_and_key(plan: Ask) -> None:
    sizes = [(8, 8), (64, 128), (72, 72), (192, 128), (192, 192), (256, 64)]
    for (d, dv), sq, group, sk in itertools.product(sizes, (1, 5, 64, 65, 1000), (1, 3, 8), (1, 300, 9000)):
        p = plan(sq, sk, d, dv, batches=3, group=group)
        assert p["head_size"] >= d and p["value_size"] >= dv
        assert p["packed"] in (1, group)
        assert p["tile_rows"] % p["packed"] == 0 and p["tile_rows"] <= p["rows"]
        assert p["row_tiles"] * p["tile_rows"] >= sq * p["packed"]
        assert p["tiles"] == 3 * group // p["packed"] * p["row_tiles"]
        assert p["tiles"] % (p["row_tiles"] * p["section_heads"]) == 0
        assert (p["splits"] - 1) * p["split_keys"] < sk <= p["splits"] * p["split_keys"]
        # TMA stores 16 rows of whole positions at a time.
        assert p["through_memory"] or (p["splits"] == 1 and 16 % p["packed"] == 0)


def test_decoding_packs_the_group(plan: Ask) -> None:
    p = plan(1, 65536, batches=8, group=4)
    assert p["packed"] == 4 and p["tiles"] == 8 and p["splits"] >= 13 and p["partial_rows"] == 4


def test_what_it_does_not_take(plan: Ask) -> None:
    assert plan(64, 64, 257) is None
    assert plan(64, 64, 64, 264) is None
    assert plan(2**31 - 2000, 2000) is None
    assert plan(128, 128, batches=2**31) is None
    most = 2**31 - 1 - 2 * 132  # each CTA's 32-bit item counter passes the last item
    assert plan(128, 128, batches=most) is not None and plan(128, 128, batches=most + 1) is None


# ---- values of more than 256 columns ---------------------------------------------------------------------------

wide = attend_fixture("attention_wide", [FOLDER / "wgmma" / "wide.cu", *(s for s in SOURCES if s.name != "bf16.cu")])


@pytest.mark.parametrize("latent", [False, True], ids=["values of their own", "latent"])
def test_wide_values(wide: Attend, latent: bool) -> None:
    """Heads that fill a tile and fewer, positions, limits, splits, soft capping, sinks; no keys that any row sees."""
    sizes = [(64, 1, 700, 512), (16, 5, 300, 512), (1, 130, 257, 264), (24, 1, 1, 320), (5, 7, 129, 8)]
    ends = [(None, None), (None, 1), (-100, 40), (None, 250), (200, None), (5000, 6000)]
    limits = [{name: n for name, n in zip(("first", "last"), two, strict=True) if n is not None} for two in ends]
    draw = random.Random(0)
    cases = []
    for seed, ((group, sq, sk, dv), limit) in enumerate(itertools.product(sizes, limits)):
        d = [dv, 512, 576] if latent else [64, dv, 512]
        fields = choose(draw, sm_count=[1, 3, 40], outer=[1, 2], inner=[1, 2], d=d) | limit
        fields |= {"bshd": seed % 2, "mask": 9 * latent, "softcap": seed % 3 // 2 * 4.0, "sinks": seed % 4 % 3}
        cases.append(Case(seed, group=group, sq=sq, sk=sk, dv=dv, **fields))
    results = wide(cases)
    assert any("splits 1:" not in result for result in results) and any("splits 1:" in result for result in results)
