"""Result files: what they say about a run, how runs merge, how rows are read back. Needs no built library."""

import contextlib
import hashlib
import json
import math
import os
import re
import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tools.machine_code import machine_code as machine_code

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def sources_digest(paths: Iterable[str], root: Path = ROOT) -> str:
    """First 16 hex digits of sha256 over the lines `<sha256 of file>  <path>` of all files under `paths`, sorted.

    What running and building leave there (caches, libraries) is no source.
    """
    files = sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for path in paths
        for folder, _, names in os.walk(root / path)
        for name in names
        if not folder.endswith("__pycache__") and not name.endswith(".so")
    )
    lines = "".join(f"{hashlib.sha256((root / file).read_bytes()).hexdigest()}  {file}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def commit() -> str:
    """The measured commit: XGEMM_COMMIT, git, or a file `.commit` (for a tree that travels without .git)."""
    if value := os.environ.get("XGEMM_COMMIT"):
        return value
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        git = ["git", "-C", str(ROOT)]
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "csrc"], capture_output=True, text=True, check=True)
        return head.stdout.strip() + ("-dirty" if changed.stdout.strip() else "")
    with contextlib.suppress(OSError):
        return (ROOT / ".commit").read_text().strip()
    return "unknown"


def gpu_folder(name: str) -> str:
    """'NVIDIA H200' -> 'nvidia_h200'."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def cpu_name() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "CPU"


GROUP = ("case", "dtype", "mode", "l2", "graph", "launch")  # rows have those that their benchmark knows


def group_key(row: dict) -> tuple:
    """What the contenders of one interleaved measurement share."""
    return tuple(row.get(name) for name in GROUP)


def merge_rows(old: list[dict], new: list[dict]) -> list[dict]:
    """New measurements replace the old ones of the same group as a whole (a ratio is of one run); other groups stay."""
    groups: dict[tuple, list[dict]] = {}
    for row in old:
        groups.setdefault(group_key(row), []).append(row)
    for key in {group_key(row) for row in new}:
        if key in groups:
            groups[key] = []
    for row in new:
        groups.setdefault(group_key(row), []).append(row)
    return [row for rows in groups.values() for row in rows]


def dump(document: dict) -> str:
    """The document as JSON with one row a line, so that a change of one figure is a change of one line."""
    head = json.dumps({key: value for key, value in document.items() if key != "rows"}, indent=1)
    rows = ",\n".join("  " + json.dumps(row) for row in document["rows"])
    return f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n'


def grouped(rows: Iterable[dict]) -> list[dict[str, dict]]:
    """Rows of one measurement together, by contender."""
    groups: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        groups.setdefault(group_key(row), {})[row["contender"]] = row
    return list(groups.values())


def geomean(values: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(value) for value in values))
