"""GPU tests, compute-sanitizer's four tools and the fuzzer, written to ``benchmarks/results/<gpu>/gpu_tests.json``.

``python -m tools.gpu_tests`` runs everything. ``--only tests memcheck`` runs some of it; ``--jobs 8`` divides the tests
of each in eight shards and runs eight processes at a time; ``--shard 2/3`` runs the second third of the tests of each.
Results of the same sources and kernels are merged into the file, so that a long run can be done in parts; others are
dropped. The sanitizers run the tests marked ``sanitize`` (a small case of every kernel: they are 10 to 50 times
slower), with torch's own operators on the CPU (tools/torch_on_cpu.py). The fuzzer (tools/fuzz) runs 100,000 random
cases, others each day, or as many as --timeout has room for. ``--select EXPRESSION`` (pytest's -k) looks at some tests
and records nothing. ``--out DIR`` writes to another folder, starting from the committed file: a machine that is only
lent brings it back. A shard that died or saw no GPU counts as one failed test, a tool's log without an end as -1
errors.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ["csrc", "tests", "torch_ext"]
OURS = "5xgemm"  # in the mangled name of every kernel in our namespace
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # an access outside a tensor is one outside an allocation
# Mbarriers. Without a number synccheck overflowed where two instructions initialised 16 of a block;
# with 64 it did so in some orders of the tests.
MBARRIERS = ["--num-cuda-barriers", "512"]
SANITIZERS: dict[str, tuple[list[str], dict[str, str]]] = {
    "memcheck": (["--report-api-errors", "no", "--kernel-name", f"kns={OURS}"], UNCACHED),
    "racecheck": (["--kernel-name", f"kns={OURS}", "--print-limit", "10000000", *MBARRIERS], {}),
    # Every kernel is watched, since one of torch's may fill an input; only errors in ours count.
    "initcheck": (
        ["--check-api-memory-access", "no", "--show-backtrace", "no", "--print-limit", "10000000"],
        UNCACHED,
    ),
    "synccheck": (["--kernel-name", f"kns={OURS}", *MBARRIERS], {}),
}
TOOLS = ["tests", *SANITIZERS, "fuzz"]
FUZZ_CASES = 100_000
SHARD, SANITIZER = "XGEMM_TEST_SHARD", "XGEMM_SANITIZER"  # environment variables of the processes that run tests
NO_GPU = "no NVIDIA GPU"  # why tests/conftest.py skips a test
RUNNING: set[subprocess.Popen] = set()  # each with a process group of its own


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """This module is a pytest plugin as well: it keeps the tests of one shard, chosen by their names."""
    index, count = map(int, os.environ.get(SHARD, "1/1").split("/"))
    other = [item for item in items if zlib.crc32(item.nodeid.encode()) % count != index - 1]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % count == index - 1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Under a sanitizer, a test's references are computed on the CPU."""
    if SANITIZER not in os.environ:
        return (yield)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from tools.torch_on_cpu import TorchOnCpu

    with sdpa_kernel(SDPBackend.MATH), TorchOnCpu():
        return (yield)


def end(run: subprocess.Popen) -> None:
    """Ends a process that we have started and those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)


def run_logged(command: list[str], log: Path, environment: dict[str, str], timeout: float) -> int:
    """Runs a command whose output goes to `log`, and ends it after `timeout` seconds. Its exit status."""
    with log.open("w") as file:  # no pipe: what a process leaves running would keep it open
        run = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        RUNNING.add(run)
        try:
            run.wait(timeout)
        except subprocess.TimeoutExpired:
            end(run)
            file.write(f"\nended after {timeout:.0f} s\n")
            run.wait()
        finally:
            RUNNING.discard(run)
    return run.returncode


def run_pytest(
    marker: str, select: str, folder: Path, launcher: list[str], environment: dict[str, str], timeout: float
) -> tuple[dict[str, int], str]:
    """Runs the tests of `marker`: the outcomes' counts, and what pytest printed."""
    report, log = folder / "junit.xml", folder / "pytest.log"
    command = [*launcher, sys.executable, "-m", "pytest", "-q", "-p", "tools.gpu_tests", "-p", "no:cacheprovider"]
    command += ["-m", marker, "-k", select, f"--junitxml={report}"]
    status = run_logged(command, log, environment, timeout)
    output = log.read_text(errors="replace")
    if not report.exists():  # the process died
        return {"passed": 0, "failed": 1, "skipped": 0}, output
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(s.get(key, 0)) for s in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    # 0: all passed, 5: the shard has no test; without a failed test anything else is an end before the end.
    ended = not launcher and status not in (0, 5)
    no_gpu = NO_GPU in report.read_text()  # under a sanitizer that does not know the driver
    passed = tests - failures - errors - skipped
    return {"passed": passed, "failed": failures + errors or int(ended or no_gpu), "skipped": skipped}, output


def run_fuzz(
    shard: str, cases: int, folder: Path, threads: int, timeout: float, device: str = "cuda"
) -> tuple[dict[str, int], str]:
    """A part of the fuzzer's cases, of as many as six tenths of the time allow: the counts, and what it printed.

    One that died is a failure.
    """
    report, log = folder / "fuzz.json", folder / "fuzz.log"
    seed = int(datetime.now(timezone.utc).strftime("%Y%m%d"))
    command = [sys.executable, "-m", "tools.fuzz", "--device", device, "--jobs", "1", "--shard", shard]
    command += ["--cases", str(cases), "--minutes", f"{0.6 * timeout / 60:.2f}"]  # it reports at its end only
    command += ["--seed", str(seed), "--json", str(report)]
    run_logged(command, log, {"OMP_NUM_THREADS": str(threads)}, timeout)
    found = json.loads(report.read_text()) if report.exists() else {"cases": 0, "failures": 1}
    counts = {"passed": max(0, found["cases"] - found["failures"]), "failed": found["failures"], "skipped": 0}
    return {**counts, "seed": seed}, log.read_text(errors="replace")


def sanitizer_errors(tool: str, log: str) -> int:
    """Errors that a sanitizer's log reports in our kernels; -1 when the tool did not come to its end."""
    summary = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", log)
    if summary is None:
        return -1
    if tool != "initcheck":
        return int(summary[1] or summary[2])
    return -1 if "error buffer overflow" in log else sum("xgemm::" in place for place in reports(log))


def reports(log: str) -> list[str]:
    """Where each report of a log lies: its kernel stands in the next line, of a race in the report's own."""
    return re.findall(
        r"^========= (?:\S.*\n=========     at |\w+: Race reported between \w+ access at )(.*)", log, re.M
    )


def run_part(tool: str, shard: str, select: str, threads: int, timeout: float) -> tuple[dict[str, Any], str]:
    """One tool over one shard: what goes into the file's `parts`, and what a reader wants to see."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "sanitizer.log"
        if tool == "fuzz":
            counts, output = run_fuzz(shard, FUZZ_CASES, folder, threads, timeout)
            return {"tool": tool, "shard": shard, **counts, "seconds": round(time.monotonic() - start, 1)}, output
        environment, launcher, marker = {SHARD: shard, "OMP_NUM_THREADS": str(threads)}, [], "cuda"
        if tool != "tests":
            options, variables = SANITIZERS[tool]
            environment |= variables | {SANITIZER: tool}
            marker = "cuda and sanitize"
            launcher = ["compute-sanitizer", "--tool", tool, "--log-file", str(log), "--check-exit-code", "no"]
            launcher += ["--require-cuda-init", "no", *options]
        counts, output = run_pytest(marker, select, folder, launcher, environment, timeout)
        part: dict[str, Any] = {"tool": tool, "shard": shard, **counts}
        if tool != "tests":
            text = log.read_text(errors="replace") if log.exists() else ""
            part["errors"] = sanitizer_errors(tool, text)
            if part["errors"]:
                places = Counter(reports(text)).most_common(40)
                output += "".join(f"{count:6} at {place}\n" for place, count in places) + text[:20_000]
            output += "".join(text.splitlines(keepends=True)[-1:])
    part["seconds"] = round(time.monotonic() - start, 1)
    return part, output


def run_parts(
    tools: list[str], shards: list[str], jobs: int, select: str, timeout: float
) -> Iterator[tuple[dict[str, Any], str]]:
    """Each tool over each shard, `jobs` at a time, in the order in which they end."""
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ThreadPoolExecutor(jobs)
    try:
        parts = [pool.submit(run_part, tool, shard, select, threads, timeout) for tool in tools for shard in shards]
        for part in as_completed(parts):
            yield part.result()
    finally:  # none outlives this process
        pool.shutdown(wait=False, cancel_futures=True)
        for run in list(RUNNING):
            end(run)


def merge(old: list[dict[str, Any]], new: dict[str, Any]) -> list[dict[str, Any]]:
    """Adds a part; it replaces the same shard of its tool, and shards of another division of the tests."""

    def replaced(part: dict[str, Any]) -> bool:
        same_division = part["shard"].split("/")[1] == new["shard"].split("/")[1]
        return part["tool"] == new["tool"] and (part["shard"] == new["shard"] or not same_division)

    return sorted([*(part for part in old if not replaced(part)), new], key=lambda part: (part["tool"], part["shard"]))


def summarise(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The counts that readers look at, and which shards are still to be run."""

    def total(tool: str, key: str) -> int:
        return sum(p[key] for p in parts if p["tool"] == tool)

    sanitizer, fuzz, missing = {}, {}, []
    for tool in TOOLS:
        mine = [p for p in parts if p["tool"] == tool]
        count = int(mine[0]["shard"].split("/")[1]) if mine else 1
        shards = {p["shard"] for p in mine}
        missing += [f"{tool} {i}/{count}" for i in range(1, count + 1) if f"{i}/{count}" not in shards]
        if mine and tool == "fuzz":
            failures = total(tool, "failed")
            fuzz = {"cases": total(tool, "passed") + failures, "failures": failures, "seed": mine[-1]["seed"]}
        if mine and tool in SANITIZERS:
            sanitizer[tool] = {
                "tests": total(tool, "passed") + total(tool, "failed"),
                "failed": total(tool, "failed"),
                "errors": -1 if any(p["errors"] < 0 for p in mine) else total(tool, "errors"),
            }
    counts = {key: total("tests", key) for key in ("passed", "failed", "skipped")}
    return {**counts, "sanitizer": sanitizer, "fuzz": fuzz, "missing": missing, "parts": parts}


def shard(text: str) -> str:
    """What --shard takes, of the fuzzer too."""
    part = re.fullmatch(r"(\d+)/(\d+)", text)
    if part is None or not 1 <= int(part[1]) <= int(part[2]):
        raise argparse.ArgumentTypeError(f"expected I/N with I of 1 to N, got {text}")
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=TOOLS, default=TOOLS, help="what to run")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="run N shards of the tests of each side by side"
    )
    parser.add_argument("--shard", type=shard, metavar="I/N", help="run the I-th of N shards of the tests only")
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="end a shard after so many seconds")
    parser.add_argument("--select", default="", metavar="EXPRESSION", help="pytest's -k; records nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write DIR/gpu_tests.json instead")
    arguments = parser.parse_args()
    if arguments.jobs < 1 or (arguments.jobs > 1 and arguments.shard):
        parser.error("--jobs: expected a number from 1 on, and no --shard with more than 1")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    import torch

    from benchmarks.common import Gpu
    from benchmarks.results import RESULTS, commit, gpu_folder, machine_code, sources_digest

    if not torch.cuda.is_available():
        sys.exit("no NVIDIA GPU here: the GPU tests and the sanitizers need one")
    if set(arguments.only) & SANITIZERS.keys() and shutil.which("compute-sanitizer") is None:
        sys.exit("no compute-sanitizer on PATH: install a CUDA toolkit or PyPI's 'cuda-toolkit[sanitizer]==13.0.*'")
    gpu = torch.cuda.get_device_name()
    code = {"sources": {"paths": SOURCES, "sha256": sources_digest(SOURCES)}, "machine_code": machine_code(SOURCES)}
    versions = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "driver": Gpu(torch.device("cuda", 0)).driver,
    }
    committed = RESULTS / gpu_folder(gpu) / "gpu_tests.json"
    path = arguments.out / committed.name if arguments.out else committed
    parts: list[dict[str, Any]] = []
    for earlier in (path, committed):
        if earlier.exists():
            old = json.loads(earlier.read_text())
            parts = old["parts"] if old["gpu"] == gpu and all(old.get(key) == code[key] for key in code) else []
            break
    good = True
    shards = [arguments.shard] if arguments.shard else [f"{i}/{arguments.jobs}" for i in range(1, arguments.jobs + 1)]
    for part, output in run_parts(arguments.only, shards, arguments.jobs, arguments.select, arguments.timeout):
        print(f"== {part['tool']} {part['shard']}\n{output}{json.dumps(part)}", flush=True)
        good = good and part["failed"] == 0 and part.get("errors", 0) == 0
        if arguments.select:
            continue
        date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        parts = merge(parts, part | {"date": date})
        header = {"gpu": gpu, "date": date, "commit": commit(), "versions": versions, **code}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"op": "gpu_tests", **header, **summarise(parts)}, indent=1) + "\n")
    if not arguments.select:
        result = summarise(parts)
        print(json.dumps({key: value for key, value in result.items() if key != "parts"}, indent=1))
        print(f"written to {path}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
