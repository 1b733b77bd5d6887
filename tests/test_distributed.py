"""DTensor: several processes against one. The checks are in distributed_worker.py."""

import os
import re
import sys
from pathlib import Path

import common
import pytest
import torch

TESTS = Path(__file__).parent


def run(backend: str, folder: Path, *sizes: int) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)]), "OMP_NUM_THREADS": "1"}
    environment |= {"CUDA_VISIBLE_DEVICES": ""} if backend == "gloo" else {}
    command = (sys.executable, TESTS / "distributed_worker.py", backend, folder, *sizes)
    done = common.run(*command, env=environment, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_check(tmp_path: Path) -> None:
    """Two processes, three for shards that are uneven or empty, and the example."""
    printed = run("gloo", tmp_path, 2, 3)
    rates = re.search(r"torch +(\d+) tokens/s\n +xgemm +(\d+) tokens/s.*differ by (\S+)\n", printed)
    assert rates and int(rates[1]) > 0 and int(rates[2]) > 0 and float(rates[3]) < 1e-5, printed
    assert "calls that stayed on torch: none" in printed


@pytest.mark.cuda
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_every_check_on_gpus(tmp_path: Path) -> None:
    run("nccl", tmp_path, 2)
