"""Which kernel, tile and split a product takes: plan.cpp is compiled and asked; its answers are compared with a file.

tests/golden/matmul_choice.txt holds a line for each product: the question, a colon, the decision. If a change of a plan
is meant, ``XGEMM_WRITE_GOLDEN=1 python -m pytest tests/test_matmul_choice.py`` writes the new decisions to the file,
and git shows which products they move.
"""

import os
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from matmul_plans import BF16, F16, F32, F64, HIGH, HIGHEST, IEEE, MEDIUM, Ask, plan_fixture

from benchmarks import tune
from tools.fuzz import ops as fuzz

GOLDEN = Path(__file__).with_name("golden") / "matmul_choice.txt"
plan = plan_fixture("choice")
names = plan_fixture("names")
DTYPES = ["f32", "f16", "bf16", "f64"]
PRECISIONS = ["highest", "ieee", "high", "medium"]
Question = dict[str, int | str]
EVERY_MODE = [
    *({"dtype": F32, "precision": precision} for precision in (HIGHEST, IEEE, HIGH, MEDIUM)),
    {"dtype": F32, "precision": HIGHEST, "batch_invariant": 1},
    *({"dtype": dtype, "precision": HIGHEST} for dtype in (F16, BF16, F64)),
]
HALF_AND_HIGHEST = [mode for mode in EVERY_MODE if mode["dtype"] in (F32, BF16) and mode["precision"] == HIGHEST]


def product(m: int, n: int, k: int, batch: int = 1, layout: str = "nn", **options: int) -> Question:
    return {"m": m, "n": n, "k": k, "batch": batch, "layout": layout} | options


def questions_of_benchmarks() -> Iterator[Question]:
    """Every shape of the benchmarks; those that the report shows in every mode and layout."""
    from benchmarks import gated_linear, linear, matmul

    for shape in dict.fromkeys(shape for group in matmul.GROUPS.values() for shape in group):
        for layout in ("nn", "nt", "tn", "tt"):
            for mode in EVERY_MODE if layout == shape.layout else HALF_AND_HIGHEST:
                yield product(shape.m, shape.n, shape.k, shape.batch, layout) | mode
    for shape in dict.fromkeys([*matmul.EXTRA, *matmul.QUICK, *matmul.CPU]):
        for mode in EVERY_MODE:
            yield product(shape.m, shape.n, shape.k, shape.batch, shape.layout) | mode
    for tokens, size, wide, _ in dict.fromkeys([*linear.PEERS, *linear.EXTRA]):
        for mode in EVERY_MODE:
            yield product(tokens, wide, size, layout="nt") | mode
            if mode in HALF_AND_HIGHEST:
                yield product(tokens, wide, size, layout="nt", residual=1) | mode
        for precision in (HIGHEST, HIGH):
            yield product(tokens, wide, size, layout="nt", prepared=1, dtype=F32, precision=precision)
    for tokens, size, wide, _ in dict.fromkeys([*gated_linear.PEERS, *gated_linear.EXTRA]):
        for mode in EVERY_MODE:
            yield product(tokens, wide, size, layout="nt", gated=1) | mode


def random_questions(count: int = 500) -> Iterator[Question]:
    """The same on every run."""
    draw = random.Random(20261123)

    def size(longest: int) -> int:
        x = int(2 ** draw.uniform(0, longest))
        step = draw.choice([1, 1, 8, 16, 64])
        return max(1, x // step * step)

    for _ in range(count):
        m, n, k = size(14), size(14), size(15)
        batch = draw.choice([1, 1, 1, size(7)])
        layout = draw.choice(["nn", "nt", "tn", "tt"])
        unaligned = {"offset": 8} if draw.random() < 0.1 else {"offset_b": 8} if draw.random() < 0.1 else {}
        gpu = draw.choice([{}, {}, {}, {}, {"sm_count": 114}, {"major": 8, "sm_count": 108}])
        prepared = {"prepared": 1} if layout == "nt" and batch == 1 and draw.random() < 0.2 else {}
        for mode in EVERY_MODE:
            if mode["dtype"] == F16:
                continue
            if prepared and mode["dtype"] == F32 and mode["precision"] != IEEE:
                yield product(m, n, k, batch, layout, **unaligned, **gpu, **prepared) | mode
            yield product(m, n, k, batch, layout, **unaligned, **gpu) | mode


def line_of(question: Question) -> str:
    sizes = "x".join(str(question[name]) for name in ("m", "n", "k"))
    batch = f"{question['batch']}x" if question["batch"] != 1 else ""
    named = ("m", "n", "k", "batch", "layout", "dtype", "precision")
    rest = "".join(f" {name}={value}" for name, value in question.items() if name not in named)
    return f"{DTYPES[question['dtype']]} {PRECISIONS[question['precision']]} {batch}{sizes} {question['layout']}{rest}"


def question_of(line: str) -> Question:
    dtype, precision, sizes, layout, *rest = line.split()
    *batch, m, n, k = map(int, sizes.split("x"))
    question = product(m, n, k, *(batch or [1]), layout)
    question |= {"dtype": DTYPES.index(dtype), "precision": PRECISIONS.index(precision)}
    return question | {name: int(value) for name, value in (word.split("=") for word in rest)}


def test_decisions_are_those_of_the_golden_file(plan: Ask) -> None:
    if os.environ.get("XGEMM_WRITE_GOLDEN"):
        questions = dict.fromkeys(map(line_of, [*questions_of_benchmarks(), *random_questions()]))
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("".join(f"{line}: {plan(**question_of(line))}\n" for line in questions))
    lines = GOLDEN.read_text().splitlines()
    assert len(lines) > 5000
    moved = []
    for line in lines:
        question, golden = line.split(": ")
        if (now := plan(**question_of(question))) != golden:
            moved.append(f"{question}\n  was {golden}\n  now {now}")
    if moved:
        pytest.fail(f"{len(moved)} of {len(lines)} products take another plan:\n" + "\n".join(moved[:10]))


def test_forced_names(plan: Ask, names: Ask) -> None:
    """XGEMM_MATMUL_PLAN: every tile takes a product that it can do, and every name that is in use elsewhere is one."""
    verdict, _, valid = names(64, 64, 64, forced="sgemm_128x128").partition(": ")
    assert verdict == "unknown"
    valid = valid.partition(" (")[0].split(", ")
    assert len(valid) == len(set(valid))
    for name in valid:
        dtype = F32 if "tf32" in name else {"fp64": F64, "mma": BF16, "wgmma": BF16}.get(name.split("_")[0], F32)
        m, layout = (4, "nn" if name == "sweep" else "nt") if name in ("gemv", "dot", "sweep") else (64, "nt")
        taken = plan(
            m, 256, 512, dtype=dtype, precision=HIGH if "tf32" in name else HIGHEST, forced=name, layout=layout
        ).split()
        assert taken[0].startswith(name.removesuffix("_apart").removesuffix("_few_rows")), name
    in_use = set(re.findall(r"simt_\w+", tune.__doc__)) | {*fuzz.PLANS, "fp64_64x64/4"}
    for name in in_use:
        assert names(64, 64, 64, forced=name).startswith("known: "), name
    for name in ("direct", "mma_16x16", "fp64_63x64", "fp64/4", "fp64_64x64/", "fp64_64x64/two", "wgmma_", "Simt"):
        assert names(64, 64, 64, forced=name).startswith("unknown: "), name


@pytest.mark.parametrize("major", [8, 10, 12])
def test_other_gpus_than_hopper_take_kernels_that_are_compiled_for_them(plan: Ask, names: Ask, major: int) -> None:
    """cmake/cuda.cmake compiles every other family's kernels for sm_90a alone; forced names are no exception."""
    valid = names(64, 64, 64, forced="sgemm_128x128").partition(": ")[2].partition(" (")[0].split(", ")
    for name in ["", *valid]:
        for dtype in (F32, F16, BF16, F64):
            for m in (4, 256):
                options = {"dtype": dtype, "major": major} | ({"forced": name} if name else {})
                family = plan(m, 256, 512, **options).split()[0]
                assert family.startswith("simt_") or family in ("gemv", "dot"), (name, dtype, m)
