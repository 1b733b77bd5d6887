"""The built library's dynamic symbols, and the tools that build, set up and record evidence."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import torch_ext
from tools import find_nvcc, gpu_tests
from tools.torch_on_cpu import TorchOnCpu

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = Path(torch_ext.__file__).with_name("libxgemm.so")
TORCH_LIBRARIES = Path(torch.__file__).parent / "lib"
SYSTEM = {"libc.so.6", "libdl.so.2", "libgcc_s.so.1", "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6"}
WEAK = "aoti_torch_get_current_cuda_stream"  # lives in libtorch_cuda.so only


def readelf(*arguments: str) -> str:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf (binutils)")
    return subprocess.run(["readelf", "--wide", *arguments], capture_output=True, text=True, check=True).stdout


def dynamic_symbols(library: Path) -> list[tuple[str, bool, bool]]:
    """(name with its version, defined, weak) of each dynamic symbol."""
    symbols = []
    for line in readelf("--dyn-syms", str(library)).splitlines():
        columns = line.split()
        if len(columns) >= 8 and columns[0].rstrip(":").isdigit() and columns[4] != "LOCAL":
            symbols.append((columns[7], columns[6] != "UND", columns[4] == "WEAK"))
    return symbols


def test_library_exports_nothing() -> None:
    assert [name for name, defined, _ in dynamic_symbols(LIBRARY) if defined] == []


def test_library_uses_no_cpp_symbol_of_torch() -> None:
    names = [name for name, _, _ in dynamic_symbols(LIBRARY)]
    assert any(name.startswith("torch_call_dispatcher") for name in names)
    assert [name for name in names if re.match(r"_Z\w*?N[KVRO]*(2at|3c10|5torch|6caffe2)\d", name)] == []


def test_symbols_of_torch_are_in_every_torch() -> None:
    """What is not a system library's is in libtorch_cpu, so that a torch without CUDA can load the file."""
    wanted = {(name, weak) for name, _, weak in dynamic_symbols(LIBRARY) if re.match(r"(aoti_)?torch_", name)}
    cpu_only = {name for name, defined, _ in dynamic_symbols(TORCH_LIBRARIES / "libtorch_cpu.so") if defined}
    assert {name for name, weak in wanted if name not in cpu_only} <= {WEAK}
    assert {name for name, weak in wanted if weak} <= {WEAK}


def test_library_needs_torch_and_system_libraries_only() -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", readelf("--dynamic", str(LIBRARY))))
    assert "libtorch.so" in needed
    assert {name for name in needed if not name.startswith("ld-linux")} <= SYSTEM | {"libtorch.so"}
    assert not re.search(r"\((RPATH|RUNPATH)\)", readelf("--dynamic", str(LIBRARY)))


def fake_nvcc(folder: Path, release: str) -> str:
    folder.mkdir(parents=True)
    nvcc = folder / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    return str(nvcc)


def test_find_nvcc_takes_the_first_that_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDACXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "old"))
    fake_nvcc(tmp_path / "old" / "bin", "11.8")
    new = fake_nvcc(tmp_path / "new", "12.4")
    monkeypatch.setenv("PATH", f"{tmp_path / 'new'}:{os.environ['PATH']}")
    assert find_nvcc.find_nvcc() == new
    broken = tmp_path / "broken"
    broken.write_text("not a program")
    monkeypatch.setenv("CUDACXX", str(broken))
    assert find_nvcc.find_nvcc() == new
    monkeypatch.setenv("CUDACXX", fake_nvcc(tmp_path / "newer", "13.0"))
    assert find_nvcc.find_nvcc() == str(tmp_path / "newer" / "nvcc")


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["venv", "/nonexistent"], {"CXX": "no-such-compiler"}, "no C++ compiler (no-such-compiler): install one"),
        (["check", "/no/such/python"], {}, "no Python at '/no/such/python'"),
        (["check", sys.executable, "no_such_module"], {}, "lacks no_such_module: install with"),
    ],
)
def test_setup_says_in_one_line_what_is_missing(
    arguments: list[str], environment: dict[str, str], message: str
) -> None:
    run = subprocess.run(
        ["tools/setup.sh", *arguments], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert run.returncode != 0
    assert message in run.stderr and run.stderr.count("\n") == 1, run.stderr


def part(tool: str, shard: str, **counts: int) -> dict[str, object]:
    return {"tool": tool, "shard": shard, "passed": 0, "failed": 0, "skipped": 0, **counts}


def test_evidence_of_a_run_in_parts_adds_up() -> None:
    parts: list[dict[str, object]] = []
    for new in (
        part("tests", "1/2", passed=5, failed=1),
        part("tests", "2/2", passed=7, skipped=2),
        part("tests", "1/2", passed=6),  # run again: replaces the first
        part("memcheck", "1/1", passed=3, errors=4),
        part("memcheck", "1/2", passed=2, errors=0),  # another division: the old one goes
        part("racecheck", "1/1", passed=3, errors=-1),
    ):
        parts = gpu_tests.merge(parts, new)
    summary = gpu_tests.summarise(parts)
    assert {key: summary[key] for key in ("passed", "failed", "skipped")} == {"passed": 13, "failed": 0, "skipped": 2}
    assert summary["sanitizer"]["memcheck"] == {"tests": 2, "failed": 0, "errors": 0}
    assert summary["sanitizer"]["racecheck"]["errors"] == -1  # the tool died: never to be read as clean
    assert summary["missing"] == ["memcheck 2/2", "initcheck 1/1", "synccheck 1/1", "fuzz 1/1"]


def test_sanitizer_logs_are_read() -> None:
    assert gpu_tests.sanitizer_errors("memcheck", "========= ERROR SUMMARY: 0 errors\n") == 0
    assert gpu_tests.sanitizer_errors("racecheck", "========= RACECHECK SUMMARY: 2 hazards displayed (1 error)\n") == 2
    assert gpu_tests.sanitizer_errors("synccheck", "========= Error: process didn't terminate successfully\n") == -1
    foreign = (
        "========= Uninitialized __global__ memory read of size 4 bytes\n"
        "=========     at cublas_kernel(float *)+0x50\n"
        "========= Uninitialized __global__ memory read of size 4 bytes\n"
        "=========     at void xgemm::sum_kernel<float>(const float *)+0x70\n"
        "========= ERROR SUMMARY: 2 errors\n"
    )
    assert gpu_tests.sanitizer_errors("initcheck", foreign) == 1


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("def test_a(): pass\ndef test_b(): assert False", {"passed": 1, "failed": 1, "skipped": 0}),
        ("def test_a(): pass\ndef test_b(): os._exit(0)", {"passed": 0, "failed": 1, "skipped": 0}),
        ("def test_a(): pass\ndef test_b(): raise KeyboardInterrupt", {"passed": 1, "failed": 1, "skipped": 0}),
        ("x = 1", {"passed": 0, "failed": 0, "skipped": 0}),
    ],
)
def test_a_process_that_died_counts_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, counts: dict[str, int]
) -> None:
    (tmp_path / "test_it.py").write_text(f"import os\n{body}\n")
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    found, output = gpu_tests.run_pytest("not cuda", "", tmp_path, [], {"PYTHONPATH": str(ROOT)}, 60)
    assert found == counts, output


def test_a_process_that_hangs_is_ended_and_counts_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text("import os, time\ndef test_it(): os.system('sleep 100')\n")
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    start = time.monotonic()
    found, output = gpu_tests.run_pytest("not cuda", "", tmp_path, [], {"PYTHONPATH": str(ROOT)}, 3)
    assert found == {"passed": 0, "failed": 1, "skipped": 0} and "ended after 3 s" in output
    assert time.monotonic() - start < 30


def test_no_process_outlives_an_interrupted_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "test_it.py").write_text("import os, time\ndef test_it(): open('started', 'w'); time.sleep(100)\n")

    def run_part(tool: str, *_: object) -> tuple[dict[str, object], str]:
        if tool == "memcheck":  # ends while the other one runs
            while not (tmp_path / "started").exists():
                time.sleep(0.05)
        else:
            gpu_tests.run_pytest("not cuda", "", tmp_path, [], {"PYTHONPATH": str(ROOT)}, 60)
        return part(tool, "1/1"), ""

    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_tests, "run_part", run_part)
    parts = gpu_tests.run_parts(["tests", "memcheck"], ["1/1"], 2, "", 60)
    assert next(parts)[0]["tool"] == "memcheck"
    (run,) = gpu_tests.RUNNING
    parts.close()  # what an exception in the loop over them does
    assert run.wait(10) == -signal.SIGKILL


def test_shards_run_side_by_side_and_cover_every_test(monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=20)

    def run_part(tool: str, shard: str, select: str, threads: int, timeout: float) -> tuple[dict[str, object], str]:
        both.wait()  # fails where the shards come one after the other
        return part(tool, shard, passed=1, errors=0), ""

    monkeypatch.setattr(gpu_tests, "run_part", run_part)
    parts: list[dict[str, object]] = [part("memcheck", "1/3", passed=9, errors=9)]
    for new, _ in gpu_tests.run_parts(["memcheck", "racecheck"], ["1/2", "2/2"], 2, "", 60):
        parts = gpu_tests.merge(parts, new)
    assert [(p["tool"], p["shard"]) for p in parts] == [
        (tool, shard) for tool in ("memcheck", "racecheck") for shard in ("1/2", "2/2")
    ]


def test_torch_on_cpu_keeps_what_operators_mean() -> None:
    """Tensors that say they are meta, and have values all the same."""
    with TorchOnCpu("meta"):
        x = torch.zeros(6, 8, dtype=torch.float64, device="meta")
        view = x[1::2, 1::3]
        assert view.add_(1) is view and x.device.type == view.device.type == "meta"
        assert x.sum().item() == 9 and x[1, 4] == 1
        x[x == 1] = 7
        assert x.sum() == 63
        out = torch.empty(3, device="meta")
        assert torch.add(torch.ones(3, device="meta"), 1, out=out) is out and out.tolist() == [2, 2, 2]
        assert x.mT.contiguous().mT.to(torch.float32).stride() == (1, 6)
        assert x.cpu().device.type == "cpu" and x.cpu().to("meta").device.type == "meta"
        q = torch.randn(2, 3, 5, 8, device="meta")
        wanted = torch.softmax(q @ q.mT / 8**0.5, -1) @ q
        with sdpa_kernel(SDPBackend.MATH):
            torch.testing.assert_close(torch.nn.functional.scaled_dot_product_attention(q, q, q), wanted)
        ours = torch.ops.xgemm.amax(q[..., 1:], [-1])
        assert ours.device.type == "meta" and torch.equal(ours, q[..., 1:].amax(-1))
