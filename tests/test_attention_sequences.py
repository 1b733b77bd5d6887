"""Attention of sequences of different lengths on tensor cores, in the emulator (no GPU).

The op's arguments and results: tests/test_attention_varlen.py, tests/test_attention_cache.py.
"""

import random
from dataclasses import dataclass

from attention_cases import Attend, attend_fixture, choose
from common import CSRC

FOLDER = CSRC / "attention"
OF_TILES = ("problem.cpp", "plan.cpp", "mask_tiles.cu", "merge.cu", "sequence_list.cu")
TILES = [FOLDER / "tiles" / name for name in OF_TILES]
APPEND = FOLDER / "tiles" / "append.cu"
MMA = [FOLDER / "mma" / name for name in ("launch.cpp", "plan.cpp", "sequences_half.cu")]
WGMMA = [FOLDER / "wgmma" / name for name in ("launch.cpp", "sequences_half.cu")]
WIDE = [FOLDER / "wgmma" / name for name in ("launch.cpp", "wide.cu")]
SIMT = [FOLDER / "simt" / name for name in ("plan.cpp", "launch.cu", "fp32.cu", "fp64.cu")]


@dataclass
class Case:
    """A line that programs/attention_sequences.cpp reads; it says what the numbers mean."""

    seed: int = 0
    sm_count: int = 4
    sequences: int = 3
    key_heads: int = 2
    group: int = 2
    d: int = 64
    dv: int = 64
    packed: int = 0
    page_rows: int = 16
    columns: int = 0
    appended: int = 0
    max_q: int = 1
    max_k: int = 16
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    sinks: int = 0
    invariant: int = 0
    poisoned: int = 0
    lengths: int = 0


attend = attend_fixture("attention_sequences", [*MMA, *TILES, APPEND])
attend_wgmma = attend_fixture("attention_sequences_wgmma", [*WGMMA, *TILES, APPEND])
attend_wide = attend_fixture("attention_sequences_wide", [*WIDE, *TILES, APPEND])
attend_simt = attend_fixture("attention_sequences_simt", [*SIMT, APPEND])


def paged(page_rows: int, max_k: int, **more: int) -> Case:
    return Case(page_rows=page_rows, columns=-(-max_k // page_rows), max_k=max_k, **more)


def contiguous(max_k: int, **more: int) -> Case:
    return Case(page_rows=max_k, max_k=max_k, **more)


def test_every_instantiation(attend: Attend) -> None:
    sizes = [(64, 64), (128, 128), (256, 256), (96, 96), (192, 128), (40, 24)]
    cases = []
    for seed, (d, dv) in enumerate(sizes):
        cases += [
            paged(16, 200, seed=seed, d=d, dv=dv),
            paged(48, 200, seed=seed, d=d, dv=dv, max_q=70, packed=1, right=0, group=1),
            contiguous(130, seed=seed, d=d, dv=dv, max_q=3, right=0),
            Case(seed=seed, d=d, dv=dv, packed=2, max_q=140, max_k=150, right=0, sequences=5),
        ]
    served = {" ".join(result.split()[:2]) for result in attend(cases)}
    assert served == {f"few {i}" for i in range(3)} | {f"many {i}" for i in (0, 1, 2, 4, 5)}


def test_splits_follow_the_lengths(attend: Attend) -> None:
    """Of a few long sequences among many short ones; alone; for more rows than one tile; of more sequences than 128."""
    cases = [
        paged(16, 1500, seed=7, sequences=50, key_heads=1, lengths=2, sm_count=132, d=8, dv=8),
        paged(16, 2100, seed=8, sequences=128, key_heads=2, lengths=2, sm_count=90, d=8, dv=8, packed=1, max_q=2),
        paged(64, 2200, seed=9, sequences=130, key_heads=1, lengths=2, sm_count=132, d=8, dv=8),
        paged(64, 5000, seed=1, sequences=7, lengths=2, sm_count=20),
        paged(16, 2500, seed=2, sequences=1, lengths=1, sm_count=20, sinks=1),
        contiguous(3000, seed=3, sequences=4, sm_count=20, d=128, dv=128, max_q=4, right=0, left=900),
        paged(128, 3000, seed=4, sequences=2, sm_count=132, max_q=30, right=0, group=2),
        Case(seed=5, sequences=3, packed=2, max_q=40, max_k=3000, sm_count=132, right=0),
        Case(seed=6, sequences=3, packed=2, max_q=5, max_k=3000, sm_count=132, right=0, left=100),
    ]
    results = attend(cases)
    assert all("split" in result for result in results), results


def test_thousands_of_sequences(attend: Attend) -> None:
    small = {"key_heads": 1, "d": 8, "dv": 8}
    packed = Case(seed=1, sequences=2300, packed=2, max_q=7, max_k=9, **small)
    attend([packed, paged(8, 20, seed=2, sequences=1100, packed=1, max_q=2, right=0, **small)])


MODES = {"softcap": [0.0, 0.0, 5.0], "lengths": [0, 0, 1, 2]}
MODES |= {name: [0, 0, 1] for name in ("sinks", "invariant", "poisoned")}


def random_cases(seed: int, count: int) -> list[Case]:
    draw = random.Random(seed)
    cases = []
    for _ in range(count):
        max_k = draw.choice([1, 15, 17, 64, 65, 129, 300, 700])
        packed = draw.choice([0, 1, 2])
        page_rows = draw.choice([1, 3, 8, 16, 24, 64, 256])
        pages = packed < 2 and draw.random() < 0.7
        d = draw.choice([8, 40, 64, 72, 96, 128, 136, 192, 256])
        chosen = choose(
            draw, **MODES, sm_count=[1, 4, 132], sequences=[1, 2, 5, 9], key_heads=[1, 2, 3], group=[1, 2, 3, 8],
            dv=[d, d, 64, 128], max_q=[1, 1, 2, 5, 16, 40, 130], left=[-1, -1, 0, 5, 100, 2**31 - 1025],
            right=[-1, 0, 0, 0, 3, 2**31 - 1025], appended=[0, 0, 1, min(max_k, 9)] if packed < 2 else [0],
        )  # fmt: skip
        of_pages = {"page_rows": page_rows, "columns": -(-max_k // page_rows)} if pages else {"page_rows": max_k}
        cases.append(Case(draw.randrange(1000), d=d, packed=packed, max_k=max_k, **of_pages, **chosen))
    return cases


def test_random_cases(attend: Attend) -> None:
    attend(random_cases(0, 25))


def test_on_cuda_cores(attend_simt: Attend) -> None:
    """Every fp32 tile, beyond a split of 1024 keys too; head sizes that tensor cores do not take."""
    cases = random_cases(1, 12)
    cases += [
        paged(16, 2500, seed=1, sequences=2, lengths=1, d=7, dv=9),
        contiguous(2100, seed=2, sequences=2, max_q=20, right=0, left=1500, sinks=1),
        Case(seed=3, packed=2, max_q=50, max_k=1500, right=0, d=130, dv=130),
        *(paged(16, 70, seed=d, max_q=30, d=d, dv=d) for d in (24, 100)),
        paged(16, 200, seed=4, d=130, dv=136),
    ]
    assert {f"simt {i}" for i in range(6)} <= {result.split(":")[0] for result in attend_simt(cases)}


def test_by_wgmma(attend_wgmma: Attend) -> None:
    """Packed sequences whose neighbours hold NaN, and caches without a table; every tile."""
    draw = random.Random(0)
    cases = []
    for i in range(24):
        d, dv = [(64, 64), (128, 128), (192, 128), (256, 256), (40, 24), (96, 96)][i % 6]
        max_k = draw.choice([1, 60, 129, 300, 520])
        chosen = choose(
            draw, **MODES, sm_count=[1, 2, 132], sequences=[1, 2, 5, 9], key_heads=[1, 2], group=[1, 2, 3, 4],
            packed=[2, 2, 2, 0], page_rows=[max_k, max_k + 70], max_q=[65, 130, 200, 300], left=[-1, -1, 0, 100],
            right=[-1, 0, 0, 3],
        )  # fmt: skip
        cases.append(Case(i, d=d, dv=dv, max_k=max_k, **chosen))
    served = {result.split(":")[0].split()[1] for result in attend_wgmma(cases) if "wgmma" in result}
    assert served == {"1", "6", "7", "10"}


def test_wide_heads(attend_wide: Attend) -> None:
    """Values of their own and the keys' first columns; pages of every size, packed keys, many heads."""
    draw = random.Random(0)
    cases = []
    for i in range(20):
        latent = i % 2
        max_k, packed = draw.choice([1, 63, 64, 65, 129, 300, 1100]), draw.choice([0, 0, 1, 2])
        page_rows = draw.choice([1, 3, 8, 16, 24, 64, 128])
        columns = -(-max_k // page_rows) if packed < 2 and draw.random() < 0.8 else 0
        chosen = choose(
            draw, **MODES, sm_count=[1, 4, 132], sequences=[1, 2, 5], key_heads=[1, 1, 2], group=[1, 5, 16, 64],
            max_q=[1, 1, 2, 7, 70], left=[-1, -1, 0, 100], right=[-1, 0, 0, 3], appended=[0, 1] if packed < 2 else [0],
            d=[520, 576] if latent else [264, 512], dv=[512, 128] if latent else [512, 320],
        )  # fmt: skip
        if chosen["key_heads"] == 1 and chosen["max_q"] <= 2:
            chosen["group"] = draw.choice([8, 64, 96, 128])
        pages = {"page_rows": page_rows if columns else max_k, "columns": columns}
        cases.append(Case(i, max_k=max_k, packed=packed, **pages, **chosen))
    cases.append(paged(16, 3000, seed=1, sequences=2, key_heads=1, group=128, d=576, dv=512, sm_count=132, lengths=1))
    served = attend_wide(cases)
    assert {result.split()[0] for result in served} >= {"latent", "wide"}
    assert "split" in served[-1], served[-1]
