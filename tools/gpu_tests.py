"""Runs the GPU tests and compute-sanitizer's four tools and writes ``benchmarks/results/<gpu>/gpu_tests.json``.

``python -m tools.gpu_tests`` runs everything. ``--only tests memcheck`` runs some of it; ``--shard 2/3`` runs the
second third of the tests of each. Results of the same sources are merged into the file, so that a long run can be done
in parts; results of other sources are dropped. The sanitizers run the tests marked ``sanitize`` (a small case of every
kernel: they are 10 to 50 times slower). ``--select EXPRESSION`` (pytest's -k) looks at some and records nothing.
``--out DIR`` writes to another folder, starting from the committed file: a machine that is only lent brings it back.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ["csrc", "tests", "torch_ext"]
OURS = "5xgemm"  # in the mangled name of every kernel in our namespace
UNCACHED = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}  # an access outside a tensor is one outside an allocation
SANITIZERS: dict[str, tuple[list[str], dict[str, str]]] = {
    "memcheck": (["--report-api-errors", "no", "--kernel-name", f"kns={OURS}"], UNCACHED),
    "racecheck": (["--kernel-name", f"kns={OURS}"], {}),
    # Every kernel is watched, since torch's own fill the inputs; only errors in ours count.
    "initcheck": (
        ["--check-api-memory-access", "no", "--show-backtrace", "no", "--print-limit", "10000000"],
        UNCACHED,
    ),
    "synccheck": (["--kernel-name", f"kns={OURS}"], {}),
}
SHARD = "XGEMM_TEST_SHARD"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """This module is a pytest plugin as well: it keeps the tests of one shard, chosen by their names."""
    index, count = map(int, os.environ.get(SHARD, "1/1").split("/"))
    other = [item for item in items if zlib.crc32(item.nodeid.encode()) % count != index - 1]
    config.hook.pytest_deselected(items=other)
    items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % count == index - 1]


def run_pytest(
    marker: str, select: str, folder: Path, launcher: list[str], environment: dict[str, str]
) -> dict[str, int]:
    """Runs the tests of `marker` and counts the outcomes; pytest's output passes through."""
    report = folder / "junit.xml"
    command = [*launcher, sys.executable, "-m", "pytest", "-q", "-p", "tools.gpu_tests", "-p", "no:cacheprovider"]
    command += ["-m", marker, "-k", select, f"--junitxml={report}"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False)
    if not report.exists():  # the process died
        return {"passed": 0, "failed": 1, "skipped": 0}
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    tests, failures, errors, skipped = (
        sum(int(s.get(key, 0)) for s in suites) for key in ("tests", "failures", "errors", "skipped")
    )
    return {"passed": tests - failures - errors - skipped, "failed": failures + errors, "skipped": skipped}


def sanitizer_errors(tool: str, log: str) -> int:
    """Errors that a sanitizer's log reports in our kernels; -1 when the tool did not come to its end."""
    summary = re.search(r"ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard", log)
    if summary is None:
        return -1
    if tool != "initcheck":
        return int(summary[1] or summary[2])
    return -1 if "error buffer overflow" in log else sum("xgemm::" in place for place in reports(log))


def reports(log: str) -> list[str]:
    """Where each report of a log lies: it begins at an unindented line and names its kernel in the next one."""
    return re.findall(r"^========= \S.*\n=========     at (.*)", log, re.MULTILINE)


def run_part(tool: str, shard: str, select: str) -> dict[str, Any]:
    """One tool over one shard: what goes into the file's `parts`."""
    print(f"== {tool} {shard}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder, log = Path(name), Path(name) / "sanitizer.log"
        environment, launcher, marker = {SHARD: shard}, [], "cuda"
        if tool != "tests":
            options, variables = SANITIZERS[tool]
            environment |= variables
            marker = "cuda and sanitize"
            launcher = ["compute-sanitizer", "--tool", tool, "--log-file", str(log), "--check-exit-code", "no"]
            launcher += ["--require-cuda-init", "no", *options]
        counts = run_pytest(marker, select, folder, launcher, environment)
        part: dict[str, Any] = {"tool": tool, "shard": shard, **counts}
        if tool != "tests":
            text = log.read_text(errors="replace") if log.exists() else ""
            part["errors"] = sanitizer_errors(tool, text)
            if part["errors"]:
                for place, count in Counter(reports(text)).most_common(40):
                    print(f"{count:6} at {place}")
                print(text[:20_000])
            print(*text.splitlines()[-1:], sep="", flush=True)
    part["seconds"] = round(time.monotonic() - start, 1)
    return part


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

    sanitizer, missing = {}, []
    for tool in ("tests", *SANITIZERS):
        mine = [p for p in parts if p["tool"] == tool]
        count = int(mine[0]["shard"].split("/")[1]) if mine else 1
        shards = {p["shard"] for p in mine}
        missing += [f"{tool} {i}/{count}" for i in range(1, count + 1) if f"{i}/{count}" not in shards]
        if mine and tool != "tests":
            sanitizer[tool] = {
                "tests": total(tool, "passed") + total(tool, "failed"),
                "failed": total(tool, "failed"),
                "errors": -1 if any(p["errors"] < 0 for p in mine) else total(tool, "errors"),
            }
    counts = {key: total("tests", key) for key in ("passed", "failed", "skipped")}
    return {**counts, "sanitizer": sanitizer, "missing": missing, "parts": parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tools = ["tests", *SANITIZERS]
    parser.add_argument("--only", nargs="+", choices=tools, default=tools, help="what to run")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="run the I-th of N parts of the tests")
    parser.add_argument("--select", default="", metavar="EXPRESSION", help="pytest's -k; records nothing")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write DIR/gpu_tests.json instead")
    arguments = parser.parse_args()
    if not re.fullmatch(r"[1-9]\d*/[1-9]\d*", arguments.shard):
        parser.error(f"--shard: expected I/N such as 2/3, got {arguments.shard}")

    import torch

    from benchmarks.common import Gpu
    from benchmarks.results import RESULTS, commit, gpu_folder, sources_digest

    if not torch.cuda.is_available():
        sys.exit("no NVIDIA GPU here: the GPU tests and the sanitizers need one")
    if set(arguments.only) & SANITIZERS.keys() and shutil.which("compute-sanitizer") is None:
        sys.exit("no compute-sanitizer on PATH: install a CUDA toolkit or PyPI's 'cuda-toolkit[sanitizer]==13.0.*'")
    gpu = torch.cuda.get_device_name()
    sources = {"paths": SOURCES, "sha256": sources_digest(SOURCES)}
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
            parts = old["parts"] if old["sources"] == sources and old["gpu"] == gpu else []
            break
    good = True
    for tool in arguments.only:
        part = run_part(tool, arguments.shard, arguments.select)
        good = good and part["failed"] == 0 and part.get("errors", 0) == 0
        if arguments.select:
            print(json.dumps(part))
            continue
        date = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        parts = merge(parts, part | {"date": date})
        header = {"gpu": gpu, "date": date, "commit": commit(), "versions": versions, "sources": sources}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"op": "gpu_tests", **header, **summarise(parts)}, indent=1) + "\n")
    if not arguments.select:
        result = summarise(parts)
        print(json.dumps({key: value for key, value in result.items() if key != "parts"}, indent=1))
        print(f"written to {path}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
