"""Programs that need a GPU, on a stand-in for one: their GPU-only Python runs, and their files are complete."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import stand_in
import torch

from benchmarks import attention, attention_peers, common, matmul, random_shapes, results, tune
from benchmarks.attention_peers import Problem
from tools import gpu_tests

DIGEST = "0" * 16  # of the kernels: reading the library takes half a second each time


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[None]:
    monkeypatch.setattr(common.benchmark, "machine_code", lambda paths, library: DIGEST)
    with stand_in.installed(monkeypatch):
        yield


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    return ["--device", "cuda", "--quick", "--out", str(tmp_path)]


def rows_of(file: Path) -> list[dict]:
    document = json.loads(file.read_text())
    assert document["gpu"] == stand_in.H200.name and document["machine_code"] == DIGEST
    assert all(value > 0 for value in document["ceilings_gbps"].values())
    return document["rows"]


def ways(rows: list[dict]) -> set[tuple[str, bool]]:
    return {(row["l2"], row["graph"]) for row in rows}


def test_matmul(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "QUICK", matmul.shapes((8, 8, 8), (16, 64, 64)))
    assert common.main(matmul, [*arguments, "--modes", "highest,high"]) == 0
    rows = rows_of(tmp_path / "matmul.json")
    assert ways(rows) == {("hot", False), ("hot", True), ("cold", True)}
    contenders = {(row["mode"], row["contender"]) for row in rows}
    assert contenders >= {("high", "torch_tf32"), ("highest", "torch"), (None, "xgemm")}
    assert ("high", "torch") not in contenders, "TF32's peer is TF32"


def test_attention(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backends = dict.fromkeys(attention_peers.BACKENDS, attention_peers.SDPBackend.MATH)  # which a CPU has
    monkeypatch.setattr(attention_peers, "BACKENDS", backends)
    halves = Problem(2, 4, 2, 1, 64, 16), Problem(1, 4, 2, 3, 32, 16, causal=True)
    halves += (Problem(2, 2, 2, 16, 16, 16, mask="padding"),)
    problems = [(Problem(1, 2, 2, 32, 32, 16), torch.float32), *((problem, torch.bfloat16) for problem in halves)]
    monkeypatch.setattr(attention, "quick", lambda: [("prefill", problems)])
    assert attention.main(arguments) == 0
    rows = rows_of(tmp_path / "attention.json")
    assert len({row["case"] for row in rows}) == len(problems)
    assert all(row["peak_bytes"] == 200 and "baseline_error" in row for row in rows)
    assert {row["contender"] for row in rows} >= {"xgemm", "xgemm_unmasked", "sdpa_flash", "sdpa_cudnn"}


def test_random_shapes(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw, few = random_shapes.logarithmic, random_shapes.few
    monkeypatch.setattr(random_shapes, "logarithmic", lambda *limits: max(1, draw(*limits) // 64))
    monkeypatch.setattr(random_shapes, "few", lambda found, count: few(found, 1))
    assert random_shapes.main([*arguments, "--filter", "^(matmul|linear|amax|softmax).*bf16"]) == 0
    rows = rows_of(tmp_path / "random_shapes.json")
    assert {row["op"] for row in rows} == {"matmul", "linear", "amax", "softmax"}
    assert all(row["graph"] or row["l2"] == "cold" for row in rows), "no call of random shapes is timed from Python"


def test_tune_of_candidates(arguments: list[str], tmp_path: Path) -> None:
    file = tmp_path / "candidates.json"
    product = {"m": 16, "n": 64, "k": 64, "batch": 2, "layout": "nt", "dtype": "bfloat16", "mode": None}
    plans = {"mma_16x64": "mma_16x64 bytes_a=16", "simt_64x64": "simt_64x64 splits=1"}
    file.write_text(json.dumps([product | {"plans": plans}]))
    assert tune.main(["matmul", "--candidates", str(file), *arguments]) == 0
    rows = rows_of(tmp_path / f"{tune.MATMUL_PLANS}.json")
    assert {row["contender"]: row["plan"] for row in rows} == plans
    assert len(rows) == len(plans) and ways(rows) == {("cold", True)}, "one figure a kernel, without launches"


def test_gpu_tests_keep_what_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is complete after every part, and another run with the same code adds to it."""
    path = tmp_path / "out" / "gpu_tests.json"

    def run_part(tool: str, shard: str) -> tuple[dict[str, object], str]:
        if shard == "2/2":
            assert (tool, "1/2") in [(part["tool"], part["shard"]) for part in json.loads(path.read_text())["parts"]]
        errors = {} if tool == "tests" else {"errors": -1}
        return {"tool": tool, "shard": shard, "passed": 3, "failed": 0, "skipped": 1, "seconds": 1.0, **errors}, "log\n"

    def run_parts(tools: list[str], shards: list[str], *more: object) -> Iterator[tuple[dict[str, object], str]]:
        return (run_part(tool, shard) for tool in tools for shard in shards)

    monkeypatch.setattr(gpu_tests, "run_parts", run_parts)
    monkeypatch.setattr(gpu_tests.shutil, "which", lambda name: name)
    monkeypatch.setattr(gpu_tests.signal, "signal", lambda *_: None)
    monkeypatch.setattr(results, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(results, "machine_code", lambda paths: DIGEST)
    for tool, status in (("tests", 0), ("memcheck", 1)):
        monkeypatch.setattr(sys, "argv", ["gpu_tests", "--only", tool, "--jobs", "2", "--out", str(path.parent)])
        with pytest.raises(SystemExit) as ended:
            gpu_tests.main()
        assert ended.value.code == status
    document = json.loads(path.read_text())
    assert (document["gpu"], document["passed"], document["skipped"]) == (stand_in.H200.name, 6, 2)
    assert document["sanitizer"] == {"memcheck": {"tests": 6, "failed": 0, "errors": -1}}
