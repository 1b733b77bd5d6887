"""Cases of attention on tensor cores for the emulator; programs/attention_wgmma.cpp says what each number means."""

import itertools
import random
import subprocess
from collections.abc import Callable
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from common import randn

Attend = Callable[[list[Any]], list[str]]


@dataclass
class Case:
    """A line that the program reads."""

    seed: int = 0
    sm_count: int = 2
    outer: int = 1
    inner: int = 1
    group: int = 1
    sq: int = 1
    sk: int = 1
    d: int = 64
    dv: int = 64
    bshd: int = 0
    first: int = -(1 << 20)  # row i sees keys i + first to i + last - 1
    last: int = 1 << 20
    mask: int = 0
    heads: int = 0
    rows: int = 0
    special: int = 0
    softcap: float = 0.0
    sinks: int = 0  # 1: float32, one per query head; 2: the operands' dtype, one per query head and batch
    aligned: int = 0  # the mask's rows are aligned to 16 bytes
    shared: int = 0  # all outer batches have one mask


def line_of(case: Any) -> str:
    if isinstance(case, Case):  # the limits as call.cpp clamps them
        case = replace(case, first=max(case.first, -case.sq), last=min(case.last, case.sk))
    return " ".join(map(str, astuple(case))) + "\n"


def attend_fixture(program: str, sources: list[Path], **options: bool) -> Callable:
    """A fixture that runs cases in the emulator and returns what each printed."""

    @pytest.fixture(scope="module")
    def attend(emulated: Callable[..., Path]) -> Attend:
        path = emulated(program, *sources, **options)

        def run(cases: list) -> list[str]:
            lines = "".join(map(line_of, cases))
            done = subprocess.run([path], input=lines, capture_output=True, text=True, timeout=900)
            results = done.stdout.splitlines()
            for case, result in zip(cases, results, strict=True):
                assert result.endswith("passed"), (case, result, done.stderr)
            return results

        return run

    return attend


def varied_case(*numbers: int, mask: int) -> Case:
    """`numbers` are the fields from seed to bshd; the seed sets the mask's broadcast dims, soft capping and sinks."""
    seed = numbers[0]
    of_mask = {"mask": mask, "heads": seed // 2 % 2, "rows": seed // 4 % 2}
    return Case(*numbers, **of_mask, softcap=seed // 3 % 2 * 3.0, sinks=seed % 3)


def every_mask(head_sizes: list[tuple[int, int]]) -> list[Case]:
    """Each pair of head sizes with each kind of mask and several tiles of rows; every other one with few rows."""
    shapes = [(*size, 130, 150) for size in head_sizes] + [(*size, 3, 300) for size in head_sizes[::2]]
    return [
        varied_case(seed, 3, 1, 2, 2, sq, sk, d, dv, seed % 2, mask=mask)
        for seed, ((d, dv, sq, sk), mask) in enumerate(itertools.product(shapes, (0, 1, 2, 3)))
    ]


def choose(draw: random.Random, **options: list) -> dict[str, Any]:
    return {name: draw.choice(values) for name, values in options.items()}


def random_case(draw: random.Random, sq: int, group: int, sk: int, sm_counts: list[int]) -> Case:
    d = draw.choice([8, 16, 40, 64, 72, 80, 96, 104, 128, 136, 192, 200, 256])
    mask = draw.choice([0, 0, 1, 2, 3])
    position = draw.choice([0, sk - sq])
    left, right = draw.choice([1 << 20, 1 << 20, 0, 5, 70, 130, 300]), draw.choice([1 << 20, 0, 0, 7, 100])
    rows = draw.choice([0, 1]) if mask else 0
    of_mask = choose(draw, heads=[0, 1], aligned=[0, 1], shared=[0, 0, 1]) if mask else {}
    chosen = choose(
        draw, sm_count=sm_counts, outer=[1, 2], inner=[1, 2, 3], dv=[d, d, 64, 128], bshd=[0, 1], sinks=[0, 0, 1, 2],
        softcap=[0.0, 0.0, 0.0, 1.5, 30.0], special=[0, 1, 2] if mask < 2 else [0, 3, 4] if rows else [0],
    )  # fmt: skip
    limits = {"first": position - left, "last": position + right + 1}
    sizes = {"group": group, "sq": sq, "sk": sk, "d": d, "mask": mask, "rows": rows}
    return Case(seed=draw.randrange(1000), **sizes, **limits, **chosen, **of_mask)


def decoding(dtype: torch.dtype, sq: int, group: int, sk: int, d: int, dv: int = 0) -> tuple[torch.Tensor, ...]:
    """Query, key and value on a GPU: two batches of two key heads, `group` query heads for each."""
    shapes = (2, 2 * group, sq, d), (2, 2, sk, d), (2, 2, sk, dv or d)
    return tuple(randn(*shape, dtype=dtype, device="cuda") for shape in shapes)
