"""The lab's counters: ncu's output is read right, and its absence or refusal is said in one line."""

import subprocess
import sys

import pytest
from common import runs_hopper_kernels

from torch_ext.lab import counters

HEAD = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'


def line(name: str, unit: str, value: str, kernel: int = 0) -> str:
    kept = f'"{counters.METRICS[name]}","{unit}","{value}"\n'
    return f'"{kernel}","7","copy_kernel(const float *, float *, long)","Command line profiler metrics",{kept}'


COUNTED = [("load_requests", "request", "524,288"), ("load_sectors", "sector", "4,194,304")]
COUNTED += [("dram_bytes", "Mbyte", "134.50"), ("branches", "inst", "98,304"), ("dram_percent", "%", "82.13")]
PROF = '==PROF== Connected to process 7\n==PROF== Profiling "copy_kernel" - 0: 0%....100% - 1 pass\n'
OUTPUT = "".join([PROF, HEAD, *(line(*one) for one in COUNTED), line("branches", "inst", "1", kernel=1)])


def ncu(tmp_path, output: str, error: str = "") -> str:
    """A program in ncu's place, which says this."""
    path = tmp_path / "ncu"
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({output!r})\nsys.stderr.write({error!r})\n")
    path.chmod(0o755)
    return str(path)


def test_reads_the_first_kernels_metrics(tmp_path):
    found = counters.count("parity_branch", ncu(tmp_path, OUTPUT))
    expected = {"load_requests": 524288, "load_sectors": 4194304, "dram_bytes": 134.5e6, "branches": 98304}
    assert found == expected | {"dram_percent": 82.13, "sectors_a_request": 8}


def test_refusals_say_why(tmp_path, monkeypatch):
    denied = ncu(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n")
    with pytest.raises(counters.Refused, match="NVreg_RestrictProfilingToAdminUsers=0"):
        counters.count("parity_branch", denied)
    with pytest.raises(counters.Refused, match="measured no kernel: ==WARNING== No kernels were profiled"):
        counters.count("parity_branch", ncu(tmp_path, "==WARNING== No kernels were profiled.\n"))
    with monkeypatch.context() as patch:

        def run(command, timeout, **_):
            assert " ".join(command[1:4]) == "--csv --clock-control none"
            raise subprocess.TimeoutExpired(command, timeout)

        patch.setattr(subprocess, "run", run)
        with pytest.raises(counters.Refused, match="has not ended within five minutes"):
            counters.count("parity_branch", denied)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(counters.Refused, match="no ncu on PATH"):
        counters.count("parity_branch")
    with pytest.raises(ValueError, match="expected one of copy_stride_1"):
        counters.count("x")


@pytest.mark.cuda
@pytest.mark.parametrize("name", counters.PREPARED)
def test_prepared_calls_run(name):
    if name.startswith("attention_") and not runs_hopper_kernels():
        pytest.skip("needs a Hopper GPU")
    assert counters.PREPARED[name][0]()().is_cuda
