"""csrc/attention/wgmma, attention on Hopper's tensor cores: its plan, and the kernel itself in the emulator (no GPU).

On a GPU, tests/test_attention.py runs through it where it serves.
"""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from attention_cases import Attend, Case, attend_fixture, random_case, varied_case
from common import CSRC, compile_program, conversation

FOLDER = CSRC / "attention"
SOURCES = [
    *(FOLDER / "wgmma" / name for name in ("launch.cpp", "bf16.cu")),
    *(FOLDER / "tiles" / name for name in ("problem.cpp", "plan.cpp", "mask_tiles.cu", "merge.cu")),
]
BY_TMA = "mask by TMA"  # printed by the program where TMA loads the mask
HEAD_SIZES = [(64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)]


attend = attend_fixture("attention_wgmma", SOURCES)


def test_every_instantiation(attend: Attend) -> None:
    """Each tile with each kind of mask, one row tile and several, ragged."""
    cases = [
        varied_case(seed, 3, 1, 2, 2, sq, sk, d, dv, seed % 2, mask=mask)
        for seed, ((d, dv), (sq, sk), mask) in enumerate(
            (sizes, lengths, mask)
            for sizes in HEAD_SIZES
            for lengths in ((130, 150), (3, 300))
            for mask in (0, 1, 2, 3)
        )
    ]
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
    assert {result.split()[1] for result in results} == {str(i) for i in range(13)}
    assert {result.split()[1] for result in results if BY_TMA in result} == {"2", "3", "4", "5", "9"}


def test_additive_masks(attend: Attend) -> None:
    """Loaded by TMA or, where TMA cannot, by warpgroups; varying by head, batch, row; packed heads, windows."""
    draw = random.Random(0)
    limits = {"none": {}, "window": {"first": -70, "last": 30}, "causal": {"last": 1}, "from the end": {"last": 400}}
    cases = [
        Case(
            *(seed, draw.choice([1, 2, 5]), 1, draw.choice([1, 2]), group, sq, sk, d, d),
            **limits[draw.choice(list(limits))],
            bshd=draw.choice([0, 1]),
            mask=2,
            heads=heads,
            rows=draw.choice([1, 1, 1, 0]),
            special=draw.choice([0, 0, 3, 4]),
            softcap=draw.choice([0, 0, 0, 5]),
            aligned=draw.choice([1, 1, 0]),
            shared=draw.choice([0, 1]),
        )
        for seed, (heads, (group, sq), (sk, d)) in enumerate(
            (heads, rows, keys)
            for heads in (0, 1)
            for rows in ((1, 193), (2, 70), (16, 10), (3, 100))
            for keys in ((500, 64), (513, 96), (384, 128), (333, 200))
        )
    ]
    for case in cases:
        case.special = case.special if case.rows else 0
    for case, result in zip(cases, attend(cases), strict=True):
        pitch = -(-case.sk // 16) * 16 if case.aligned else case.sk
        assert (BY_TMA in result) == (case.rows == 1 and pitch % 8 == 0), (case, result)


def test_rows_masked_by_large_finite_numbers(attend: Attend) -> None:
    """Weights are exp of differences of numbers near -8e8: rounding either before the subtraction would show."""
    case = Case(sq=130, sk=300, mask=3, rows=1, special=4)
    attend([replace(case, seed=d, d=d, dv=d) for d in (64, 96, 128, 256)])


@pytest.mark.parametrize("seed", range(1))
def test_random_cases(attend: Attend, seed: int) -> None:
    draw = random.Random(seed)
    cases = []
    for _ in range(30):
        sq = draw.choice([1, 2, 3, 7, 16, 63, 64, 65, 127, 128, 129, 191, 192, 193, 257])
        group = draw.choice([1, 2, 3, 4, 5, 8, 16] if sq <= 16 else [1, 2, 4])
        sk = draw.choice([1, 2, 63, 64, 65, 79, 80, 81, 127, 128, 129, 255, 256, 257, 513, 777])
        cases.append(random_case(draw, sq, group, sk, [1, 2, 5, 132]))
    attend(cases)


def test_long_keys_in_splits(attend: Attend) -> None:
    """Splits of 1024 keys (decoding) and of 2048 (a few tiles of rows), merged in memory."""
    cases = [
        Case(seed=1, sm_count=7, outer=2, group=4, sq=1, sk=5000, d=64, last=5000, sinks=1),
        Case(seed=2, sm_count=3, group=2, sq=40, sk=8200, d=64, mask=1, rows=1, sinks=2),
        # Splits before and after the window are skipped.
        Case(
            seed=3, sm_count=7, outer=2, group=4, sq=1, sk=9000, d=64, first=4999 - 1500, last=5000, sinks=2, softcap=4
        ),
        Case(seed=4, sm_count=3, sq=130, sk=13000, d=64, first=5000, last=5100, sinks=1),
        Case(seed=5, sm_count=7, group=3, sq=2, sk=2100, d=64, first=700, last=701, mask=2),
    ]
    splits = [int(result.split("splits ")[1].split(":")[0]) for result in attend(cases)]
    assert splits == [10, 5, 2, 1, 1]


PROGRAM = r"""
#include <iostream>
#include "attention/tiles/plan.h"
#include "attention/wgmma/tiles.h"
using namespace xgemm::attention;
int main() {
  Problem p{.table = kWgmmaTiles};
  p.possible = true;
  while (std::cin >> p.causal >> p.batches >> p.group >> p.sq >> p.sk >> p.d >> p.dv >> p.sm_count) {
    p.key_end = p.sk;
    const auto q = plan_tiles(p);
    if (!q) { std::cout << "none" << std::endl; continue; }
    const Tile& t = q->info();
    std::cout << q->tile << ' ' << q->packed << ' ' << q->tile_rows << ' ' << q->row_tiles << ' '
              << q->section_heads << ' '
              << q->tiles << ' ' << q->splits << ' ' << q->split_tiles * t.keys << ' ' << q->through_memory << ' '
              << q->partial_rows << ' ' << q->ctas << ' '
              << ' ' << t.head_size << ' ' << t.value_size << ' ' << t.rows() << std::endl;
  }
}
"""
PLAN = [
    *("tile", "packed", "tile_rows", "row_tiles", "section_heads", "tiles", "splits", "split_keys", "through_memory"),
    *("partial_rows", "ctas", "head_size", "value_size", "rows"),
]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, int] | None]:
    program = compile_program(tmp_path_factory.mktemp("plan"), PROGRAM, "attention/tiles/plan.cpp")

    def ask(sq: int, sk: int, d: int = 128, dv: int = 0, batches: int = 1, group: int = 1, causal: bool = False):
        with conversation(program) as talk:
            answer = talk(int(causal), batches, group, sq, sk, d, dv or d, 132)
        return None if answer == ["none"] else dict(zip(PLAN, map(int, answer), strict=True))

    return ask


def test_splits_depend_on_rows_and_keys_alone(plan: Callable[..., dict[str, int] | None]) -> None:
    """A row's bits must not depend on the batch or on other heads."""
    for sq, sk, group in [(1, 1000, 4), (1, 65536, 1), (16, 16384, 8), (512, 16384, 2), (4096, 4096, 1)]:
        for causal in (False, True):
            found = {
                (p["splits"], p["split_keys"], p["tile"])
                for batches in (1, 7, 1000)
                if (p := plan(sq, sk, batches=batches, group=group, causal=causal))
            }
            assert len(found) == 1, (sq, sk, group, causal, found)


def test_plans_cover_every_row_and_key(plan: Callable[..., dict[str, int] | None]) -> None:
    for d, dv in [(8, 8), (64, 128), (72, 72), (192, 128), (192, 192), (256, 64)]:
        for sq in (1, 5, 64, 65, 1000):
            for group in (1, 3, 8):
                for sk in (1, 300, 9000):
                    p = plan(sq, sk, d, dv, batches=3, group=group)
                    assert p["head_size"] >= d and p["value_size"] >= dv
                    assert (
                        p["packed"] in (1, group) and p["tile_rows"] % p["packed"] == 0 and p["tile_rows"] <= p["rows"]
                    )
                    assert p["row_tiles"] * p["tile_rows"] >= sq * p["packed"]
                    assert p["tiles"] == 3 * group // p["packed"] * p["row_tiles"]
                    assert p["tiles"] % (p["row_tiles"] * p["section_heads"]) == 0
                    assert (p["splits"] - 1) * p["split_keys"] < sk <= p["splits"] * p["split_keys"]
                    # TMA stores 16 rows of whole positions at a time.
                    assert p["through_memory"] or (p["splits"] == 1 and 16 % p["packed"] == 0)


def test_decoding_packs_the_group(plan: Callable[..., dict[str, int] | None]) -> None:
    p = plan(1, 65536, batches=8, group=4)
    assert p["packed"] == 4 and p["tiles"] == 8 and p["splits"] == 32 and p["ctas"] == 256 and p["partial_rows"] == 4


def test_what_it_does_not_take(plan: Callable[..., dict[str, int] | None]) -> None:
    assert plan(64, 64, 257) is None
    assert plan(64, 64, 64, 264) is None
    assert plan(2**31 - 2000, 2000) is None
    assert plan(128, 128, batches=2**31) is None
    most = 2**31 - 1 - 2 * 132  # each CTA's 32-bit item counter passes the last item
    assert plan(128, 128, batches=most) is not None and plan(128, 128, batches=most + 1) is None
