"""benchmarks/random_shapes.py: a seed's draws, the cases' correctness, and the report."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from benchmarks import common, random_shapes, report, tables

CPU = common.Options(device=torch.device("cpu"), seed=3)
GPU = common.Options(device=torch.device("cuda"), seed=3)


def test_a_seed_alone_decides() -> None:
    assert random_shapes.products(1) == random_shapes.products(1)
    assert random_shapes.products(1, 20) == random_shapes.products(1)[:20]
    assert random_shapes.products(1) != random_shapes.products(2)
    assert [case.key for case in random_shapes.cases(GPU)] == [case.key for case in random_shapes.cases(GPU)]


def test_every_operator_dtype_layout_and_kind_is_drawn() -> None:
    cases = random_shapes.cases(GPU)
    assert len({(case.key, case.mode) for case in cases}) == len(cases)
    assert {case.fields["op"] for case in cases} >= {"matmul", "linear", "softmax", "attention", *random_shapes.REDUCED}
    products = [case for case in cases if case.fields["op"] == "matmul"]
    kinds = [(case.dtype, case.mode) for case in products]
    assert set(kinds) == set(random_shapes.KINDS)
    assert kinds.count((torch.bfloat16, None)) == random_shapes.PRODUCTS
    assert {case.shape["layout"] for case in products} == set(random_shapes.LAYOUTS)
    groups = {group for case in cases for group in case.groups}
    assert groups >= {"matmul, batched", "matmul, unaligned", "matmul, nt", "linear", "reductions", "softmax"}
    assert {len(case.shape["sizes"]) for case in cases if "reductions" in case.groups} == {1, 2, 3, 4}
    assert all(case.read + case.written < 4 * random_shapes.MOST_BYTES for case in products)


def test_cpu_cases_are_right() -> None:
    """Torch's own ops pass the check of every case, ours (ATen there) too."""
    cases = random_shapes.cases(CPU)
    assert {case.fields["op"] for case in cases} >= {"matmul", "linear", "softmax"}
    for case in cases:
        inputs = case.make(torch.device("cpu"))
        reference = case.reference(*inputs)
        for contender in case.contenders:
            with contender.context(), torch.inference_mode():
                common.check(case, contender, contender.call(*inputs), inputs, reference)


@pytest.mark.parametrize("op", random_shapes.REDUCED)
def test_a_wrong_reduction_is_refused(op: str) -> None:
    case = random_shapes.reduction(op, (3, 5, 7), (1,) if op == "argmax" else (0, 2), torch.float32)
    inputs = case.make(torch.device("cpu"))
    reference = case.reference(*inputs)
    for contender in case.contenders:
        common.check(case, contender, contender.call(*inputs), inputs, reference)
    wrong = case.contenders[1].call(*inputs)
    wrong = (wrong + 1) % 5 if op == "argmax" else wrong * 1.01
    with pytest.raises(common.WrongResult):
        common.check(case, case.contenders[1], wrong, inputs, reference)


def test_rotating_cases_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        common.benchmark, "graph_runner", lambda contender, sets, calls, **names: common.eager_runner(contender, sets)
    )
    case = next(case for case in random_shapes.cases(CPU) if case.fields["op"] == "sum")
    here = dataclasses.replace(case, make=lambda device: case.make(torch.device("cpu")))

    def ways(l2: int, bound: float) -> list[tuple[str, bool]]:
        monkeypatch.setattr(common.benchmark, "LAUNCH_BOUND_S", bound)
        machine = common.Machine("NVIDIA H200", l2, copy_gbps=4284.0, read_gbps=4390.0)
        bench = common.Benchmark("random_shapes", ["csrc/reduce"], GPU, machine, keep=False)
        passed = [(contender, {}) for contender in here.contenders]
        return [(l2, graph) for l2, graph, _ in bench._ways(here, here.make(GPU.device), passed)]

    data = case.read + case.written
    assert ways(data, 10.0) == [("cold", True)]
    assert ways(data, 0.0) == [("cold", False)]
    assert ways(data // 5, 0.0) == [("cold", False)]  # larger than four times the L2
    assert ways(1000 * data, 10.0) == [("hot", True)]  # too small to rotate


def test_estimate_names_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert random_shapes.main(["--estimate", "--device", "cuda"]) == 0
    out = capsys.readouterr().out
    for name in ("matmul", "linear", "reductions", "softmax", "attention", "all"):
        assert name in out


def test_run_on_the_cpu_writes_rows_with_operator_and_seed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--quick", "--seed", "3", "--filter", "^(matmul|amax)", "--out", str(tmp_path)]
    assert random_shapes.main(arguments) == 0
    out = capsys.readouterr().out
    assert "5th percentile" in out
    assert "the worst ten" in out
    document = json.loads((tmp_path / "random_shapes.json").read_text())
    assert {row["op"] for row in document["rows"]} == {"matmul", "amax"}
    assert {row["seed"] for row in document["rows"]} == {3}


def row(case: str, contender: str, us: float, groups: list[str]) -> dict:
    shared = {"dtype": "float64", "mode": None, "l2": "cold", "graph": True, "op": "matmul", "seed": 1, "shape": {}}
    return {"case": case, "contender": contender, "us": us, "groups": groups} | shared


def test_tables_have_geomean_percentile_and_the_worst_ten() -> None:
    rows = []
    for i in range(12):
        rows += [row(f"case {i}", "xgemm", 10.0, ["matmul"]), row(f"case {i}", "torch", 5.0 + i, ["matmul"])]
    text = tables.random_tables(rows)
    first, worst = text.split("\n\n")
    assert "| matmul | float64 | 12 | 0.99 | 0.55 | 0.50 | 5 |" in first
    assert [line.split(" | ")[-1] for line in worst.splitlines()[2:]][:3] == ["0.50 |", "0.60 |", "0.70 |"]
    assert len(worst.strip().splitlines()) == 12
    assert tables.random_tables([]) == ""


def test_the_page_has_a_part_for_them(tmp_path: Path) -> None:
    assert report.PARTS["random_shapes"](tables.Results(tmp_path, {})) == ""
