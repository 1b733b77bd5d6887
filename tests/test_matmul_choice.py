"""Which kernel, tile and split a product takes: plan.cpp is compiled and asked; its answers are compared with a file.

tests/golden/matmul_choice.txt holds a line for each product: the question, a colon, the decision. If a change of a plan
is meant, or the benchmarks list other shapes, ``XGEMM_WRITE_GOLDEN=1 python -m pytest tests/test_matmul_choice.py``
writes the file anew, and git shows which products move.
"""

import json
import os
import random
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest
from matmul_plans import BF16, F16, F32, F64, HIGH, HIGHEST, IEEE, MEDIUM, Ask, plan_fixture

from benchmarks import tune
from tools.fuzz import ops as fuzz

GOLDEN = Path(__file__).with_name("golden") / "matmul_choice.txt"
plan = plan_fixture("choice")
names = plan_fixture("names")
torchs = plan_fixture("torch")
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
DTYPES = ["f32", "f16", "bf16", "f64"]
PRECISIONS = ["highest", "ieee", "high", "medium"]
Question = dict[str, int | str]
MODES = {
    "highest": {"dtype": F32, "precision": HIGHEST},
    "high": {"dtype": F32, "precision": HIGH},
    "bf16": {"dtype": BF16, "precision": HIGHEST},
    "f64": {"dtype": F64, "precision": HIGHEST},
}


def product(m: int, n: int, k: int, batch: int = 1, layout: str = "nn", **options: int) -> Question:
    return {"m": m, "n": n, "k": k, "batch": batch, "layout": layout} | options


def questions() -> Iterator[Question]:
    """The shapes that the benchmarks list, in the modes that the report shows; of fp64 the first group of matmul's."""
    from benchmarks import gated_linear, linear, matmul

    sizes = {group: [(s.m, s.n, s.k, s.batch, s.layout) for s in shapes] for group, shapes in matmul.GROUPS.items()}
    for size in dict.fromkeys(size for group in sizes.values() for size in group):
        for mode in ("highest", "high", "bf16", *(["f64"] if size in sizes["peers"] else [])):
            yield product(*size) | MODES[mode]
    for tokens, size, wide, _ in linear.PEERS:
        for mode, more in (("highest", {}), ("highest", {"prepared": 1}), ("bf16", {})):
            yield product(tokens, wide, size, layout="nt", **more) | MODES[mode]
    for tokens, size, wide, _ in gated_linear.PEERS:
        for mode in ("highest", "bf16"):
            yield product(tokens, wide, size, layout="nt", gated=1) | MODES[mode]


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
    lines = list(dict.fromkeys(map(line_of, questions())))
    now = [f"{line}: {plan(**question_of(line))}" for line in lines]
    if os.environ.get("XGEMM_WRITE_GOLDEN"):
        GOLDEN.write_text("".join(f"{line}\n" for line in now))
    golden = GOLDEN.read_text().splitlines()
    assert [line.partition(": ")[0] for line in golden] == lines
    moved = [f"{was}\n  now {new.partition(': ')[2]}" for was, new in zip(golden, now, strict=True) if was != new]
    if moved:
        pytest.fail(f"{len(moved)} of {len(lines)} products take another plan:\n" + "\n".join(moved[:10]))


def test_every_product_has_a_plan(plan: Ask, names: Ask) -> None:
    """Random sizes, layouts, addresses and GPUs; the same on every run."""
    forced = names(64, 64, 64, forced="unknown").partition(": ")[2].partition(" (")[0].split(", ")
    known = {name.removesuffix("_apart").removesuffix("_few_rows") for name in forced}
    draw = random.Random(20261123)

    def size(longest: int) -> int:
        step = draw.choice([1, 1, 8, 16, 64])
        return max(1, int(2 ** draw.uniform(0, longest)) // step * step)

    for _ in range(100):
        layout, batch = draw.choice(["nn", "nt", "tn", "tt"]), draw.choice([1, 1, 1, size(7)])
        more = draw.choice([{}, {}, {"offset": 8}, {"offset_b": 8}, {"sm_count": 114}, {"major": 8, "sm_count": 108}])
        modes = (F32, HIGHEST), (F32, IEEE), (F32, HIGH), (F32, MEDIUM), (F16, HIGHEST), (F64, HIGHEST)
        for dtype, precision in modes:
            question = product(size(14), size(14), size(15), batch, layout, dtype=dtype, precision=precision, **more)
            assert str(plan(**question)).split()[0] in known, question


def test_forced_names(plan: Ask, names: Ask) -> None:
    """XGEMM_MATMUL_PLAN: every tile takes a product that it can do, and every name that is in use elsewhere is one."""
    verdict, _, valid = names(64, 64, 64, forced="sgemm_128x128").partition(": ")
    assert verdict == "unknown"
    valid = valid.partition(" (")[0].split(", ")
    assert len(valid) == len(set(valid))
    for name in valid:
        families = {"fp64": F64, "mma": BF16, "wgmma": BF16, "large": BF16}
        dtype = F32 if "tf32" in name or "_x2_" in name else families.get(name.split("_")[0], F32)
        m, layout = (4, "nn" if name == "sweep" else "nt") if name in ("gemv", "dot", "sweep") else (64, "nt")
        precision = HIGH if "tf32" in name else HIGHEST
        taken = plan(m, 256, 512, dtype=dtype, precision=precision, forced=name, layout=layout).split()
        assert taken[0].startswith(name.removesuffix("_apart").removesuffix("_few_rows")), name
    in_use = set(re.findall(r"simt_\w+", tune.__doc__)) | {*fuzz.PLANS, "fp64_64x64/4"}
    for name in in_use:
        assert names(64, 64, 64, forced=name).startswith("known: "), name
    shapes = ("mma_16x16", "fp64_63x64", "fp64/4", "fp64_64x64/", "fp64_64x64/two", "mma/swapped")
    for name in ("direct", "wgmma_", "Simt", *shapes):
        assert names(64, 64, 64, forced=name).startswith("unknown: "), name


@pytest.mark.parametrize("major", [8, 10, 12])
def test_other_gpus_than_hopper_take_kernels_that_are_compiled_for_them(plan: Ask, names: Ask, major: int) -> None:
    """cmake/cuda.cmake compiles the other families' kernels for sm_90a alone; forced names are no exception."""
    valid = names(64, 64, 64, forced="sgemm_128x128").partition(": ")[2].partition(" (")[0].split(", ")
    for name in ["", *valid]:
        for dtype in (F32, F16, BF16, F64):
            for m in (4, 256):
                options = {"dtype": dtype, "major": major} | ({"forced": name} if name else {})
                family = plan(m, 256, 512, **options).split()[0]
                portable = ("simt_", "mma_", "large_", "fp64_", "gemv", "dot", "outputs")
                assert family.startswith(portable), (name, dtype, m)


@pytest.mark.parametrize("major", [8, 12])
def test_other_gpus_multiply_on_tensor_cores_where_that_pays(plan: Ask, major: int) -> None:
    """A100's rates (8.0) and a GeForce card's (12.0), where three products in fp16 take longer than one in fp32."""
    for dtype in (F16, BF16):
        for m, n, k in [(4096, 4096, 4096), (16, 4096, 4096), (1000, 33, 77), (1, 1, 0), (256, 256, 9)]:
            assert plan(m, n, k, dtype=dtype, major=major).startswith(("large_", "mma_")), (m, n, k)
    assert plan(4096, 4096, 4096, dtype=BF16, major=major).startswith("large_128x")
    assert plan(4096, 4096, 4096, dtype=F32, precision=HIGH, major=major).startswith(("large_", "mma_tf32"))
    highest = plan(4096, 4096, 4096, dtype=F32, precision=HIGHEST, major=major)
    assert highest.startswith("large_x2" if major == 8 else "simt_")
    assert plan(4096, 4096, 4096, dtype=F32, precision=IEEE, major=major).startswith("simt_")


def test_where_torch_is_faster(torchs: Ask) -> None:
    """Aligned fp64 whose tiles fill the GPU badly: an H200 takes 1.1 to 1.7 times cuBLAS's time."""
    hard = {"m": 2861, "n": 144, "k": 5592, "dtype": F64}
    assert torchs(**hard) == torchs(753, 648, 1632, dtype=F64) == "faster"
    # As fast here: few rows, unaligned rows, other dtypes.
    assert torchs(64, 14336, 4096, dtype=F64) == "slower"
    unaligned = ({"n": 143}, {"k": 5593}, {"ld": 5595}, {"offset": 8}, {"offset_b": 8})
    others = ({"dtype": BF16}, {"dtype": F16}, {"dtype": F32}, {"dtype": F32, "precision": HIGH})
    for changed in (*unaligned, *others, {"m": 64}, {"major": 8}):
        assert torchs(**hard | changed) == "slower", changed


def test_torch_is_faster_in_the_results(torchs: Ask) -> None:
    """Of the measured products that the rule leaves to torch, torch was faster for two thirds and in the mean."""
    ratios = []
    for file in ("matmul", "random_shapes"):
        rows = json.loads((RESULTS / "nvidia_h200" / f"{file}.json").read_text())["rows"]
        us: dict[tuple, dict[str, float]] = {}
        for row in rows:
            if row.get("op", "matmul") == "matmul" and row["dtype"] == "float64":
                shape = tuple(row["shape"][name] for name in ("m", "n", "k", "batch", "layout"))
                us.setdefault((shape, row["l2"], row["graph"]), {})[row["contender"]] = row["us"]
        for (shape, *_), times in us.items():
            *sizes, layout = shape
            if "torch" in times and torchs(*sizes, layout=layout, dtype=F64) == "faster":
                ratios.append(times["torch"] / times["xgemm"])
    assert len(ratios) > 10
    assert sum(ratio < 1 for ratio in ratios) > len(ratios) * 2 / 3
    assert statistics.geometric_mean(ratios) < 0.95
