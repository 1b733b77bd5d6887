"""benchmarks/random_shapes.py: a seed's draws, the cases' correctness, and the report."""

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
