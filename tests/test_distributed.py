"""DTensor: two processes against one. The checks themselves are in distributed_worker.py, one start for all of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name("distributed_worker.py")
TESTS = WORKER.parent


def run(backend: str, folder: Path, size: int = 2) -> dict[str, str | None]:
    """What went wrong in each check, in any process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]), "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, WORKER, str(rank), str(size), backend, folder] for rank in range(size)]
    processes = [
        subprocess.Popen(c, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]
    errors = []
    try:
        errors = [p.communicate(timeout=300)[1] for p in processes]
    finally:
        for p in processes:
            p.kill()
    results: dict[str, str | None] = {}
    for rank, error in enumerate(errors):
        file = folder / f"{rank}.json"
        assert file.exists(), f"process {rank} ended early:\n{error}"
        for name, wrong in json.loads(file.read_text()).items():
            results[name] = results.get(name) or wrong
    return results


@pytest.fixture(
    scope="module",
    params=[
        "gloo",
        pytest.param(
            "nccl",
            marks=[
                pytest.mark.cuda,
                pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
            ],
        ),
    ],
)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run(request.param, tmp_path_factory.mktemp("distributed"))


OPS = [
    *(
        "matmul",
        "addmm",
        "linear",
        "linear_prepared",
        "gated_linear",
        "sum",
        "mean",
        "amax",
        "amin",
        "argmax",
        "argmin",
    ),
    *("logsumexp", "cross_entropy", "softmax", "log_softmax", "scaled_masked_softmax", "topk_softmax"),
    *("attention", "attention_lse"),
]
CHECKS = [
    *(f"{op}_of_any_placements" for op in OPS),
    *("columns_then_rows", "heads", "sums"),
    *("tensor_parallel_modules", "tensor_parallel_of_a_replaced_model", "sequence_parallel"),
    *("dtensors_from_end_to_end", "fully_sharded", "compiled", "errors_are_one_line"),
]


@pytest.mark.parametrize("check", CHECKS)
def test_two_processes(check: str, results: dict[str, str | None]) -> None:
    if check not in results:
        pytest.fail(f"not run: an earlier check failed: {[n for n, wrong in results.items() if wrong]}")
    if wrong := results[check]:
        pytest.fail(wrong, pytrace=False)


def test_every_check_is_listed(results: dict[str, str | None]) -> None:
    assert set(results) <= set(CHECKS)
