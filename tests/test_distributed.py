"""DTensor: several processes against one. One start runs all checks, which are in distributed_worker.py."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name("distributed_worker.py")
TESTS = WORKER.parent


def run(backend: str, folder: Path, size: int = 2) -> dict[str, str | None]:
    """Each check's error in any process, or None."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]), "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, WORKER, str(rank), str(size), backend, folder] for rank in range(size)]
    logs = [folder / f"{rank}.log" for rank in range(size)]
    processes = []
    for command, log in zip(commands, logs, strict=True):
        with log.open("w") as file:
            processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file))
    try:
        for p in processes:
            p.wait(timeout=300)
    finally:
        for p in processes:
            p.kill()
    results: dict[str, str | None] = {}
    for rank, log in enumerate(logs):
        file = folder / f"{rank}.json"
        assert file.exists(), f"process {rank} ended early:\n{log.read_text()}"
        for name, wrong in json.loads(file.read_text()).items():
            results[name] = results.get(name) or wrong
    return results


@pytest.fixture(scope="module")
def results_of_three(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run("gloo", tmp_path_factory.mktemp("three"), size=3)


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
    *("attention", "attention_lse", "attention_varlen", "attention_varlen_lse"),
    *("attention_with_cache", "attention_with_cache_lse"),
]
ANY_SIZE = [*(f"{op}_of_any_placements" for op in OPS), "extrema_of_any_placements"]
CHECKS = [
    *ANY_SIZE,
    *("columns_then_rows", "heads", "caches", "sums", "views_of_attention"),
    *("tensor_parallel_modules", "tensor_parallel_of_a_replaced_model", "sequence_parallel"),
    *("dtensors_from_end_to_end", "fully_sharded", "compiled", "errors_are_one_line"),
]


def passed(check: str, results: dict[str, str | None]) -> None:
    if check not in results:
        pytest.fail(f"not run: an earlier check failed: {[n for n, wrong in results.items() if wrong]}")
    if wrong := results[check]:
        pytest.fail(wrong, pytrace=False)


@pytest.mark.parametrize("check", CHECKS)
def test_two_processes(check: str, results: dict[str, str | None]) -> None:
    passed(check, results)


@pytest.mark.parametrize("check", ANY_SIZE)
def test_three_processes(check: str, results_of_three: dict[str, str | None]) -> None:
    """Shards are uneven or empty."""
    passed(check, results_of_three)


def test_every_check_is_listed(results: dict[str, str | None]) -> None:
    assert set(results) <= set(CHECKS)


def test_every_operator_has_a_strategy() -> None:
    import torch_ext.distributed

    schemas = {s.name for s in torch._C._jit_get_all_schemas() if s.name.startswith("xgemm::")}
    assert schemas == {f"xgemm::{name}" for name in torch_ext.distributed._STRATEGIES}


def test_example(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.tensor_parallel", "--processes", "2", "--width", "128", "--length", "32"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(
        [*command, "--seconds", "0.1"], cwd=TESTS.parent, env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    rates = re.search(r"torch +(\d+) tokens/s\n +xgemm +(\d+) tokens/s.*differ by (\S+)\n", run.stdout)
    assert rates and int(rates[1]) > 0 and int(rates[2]) > 0 and float(rates[3]) < 1e-5, run.stdout
    assert "calls that stayed on torch: none" in run.stdout
