"""benchmarks/random_shapes.py: a seed's draws, the cases' correctness, and the report."""

import dataclasses

import pytest
import torch

from benchmarks import common, random_shapes

CPU = common.Options(device=torch.device("cpu"), seed=3)
GPU = common.Options(device=torch.device("cuda"), seed=3)


def test_a_seed_alone_decides() -> None:
    assert random_shapes.products(1) == random_shapes.products(1)
    assert random_shapes.products(1, 20) == random_shapes.products(1)[:20]
    assert random_shapes.products(1) != random_shapes.products(2)
    assert [case.key for case in random_shapes.cases(GPU)] == [case.key for case in random_shapes.cases(GPU)]


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
        bench._block_s = 1e-3
        passed = [(contender, {}) for contender in here.contenders]
        return [(l2, graph) for l2, graph, _ in bench._ways(here, here.make(GPU.device), passed)]

    data = case.read + case.written
    assert ways(data, 10.0) == [("cold", True)]
    assert ways(data, 0.0) == [("cold", False)]
    assert ways(data // 5, 0.0) == [("cold", False)]  # larger than four times the L2
    assert ways(1000 * data, 10.0) == [("hot", True)]  # too small to rotate
