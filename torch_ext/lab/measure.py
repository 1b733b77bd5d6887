"""How the lab measures and what it writes: CUDA-graph timing, result rows, the result file of docs/DESIGN's format."""

import datetime
import hashlib
import json
import statistics
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["csrc/device", "csrc/lab", "torch_ext/lab"]
Row = dict[str, Any]


def time_us(call: Callable[[], object], budget_s: float) -> tuple[float, tuple[float, float]]:
    """Median and quartiles of the time of one call on the GPU, in microseconds.

    Calls are recorded in a CUDA graph, enough that a replay lasts about 0.3 ms, so that neither the host's launch cost
    nor the event's resolution counts. Inputs stay the same: what fits in L2 is hot.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream):
        call()  # module load, workspaces
        start.record()
        call()
        end.record()
        stream.synchronize()
        once = max(start.elapsed_time(end) * 1e-3, 1e-6)
        calls = max(1, min(64, round(300e-6 / once)))
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()  # not torch.cuda.graph: it empties the allocator's cache each time
        try:
            for _ in range(calls):
                call()
        finally:
            graph.capture_end()
        graph.replay()
        samples = max(3, min(100, int(budget_s / (once * calls))))
        times = []
        for _ in range(samples):
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / calls)
    low, median, high = statistics.quantiles(times, n=4)
    return median, (low, high)


def row(
    case: str,
    contender: str,
    timing: tuple[float, tuple[float, float]],
    *,
    shape: dict[str, Any],
    dtype: str = "float32",
    mode: str = "ieee",
    flops: float | None = None,
    bytes_moved: float | None = None,
    floor_us: float | None = None,
    error: dict[str, float] | None = None,
    **more: Any,
) -> Row:
    """One result row; `flops` and `bytes_moved` of a call become rates, `more` is kept as it is."""
    us, quartiles = timing
    return {
        "case": case,
        "shape": shape,
        "dtype": dtype,
        "mode": mode,
        "l2": "hot",
        "graph": True,
        "contender": contender,
        "us": round(us, 3),
        "us_quartiles": [round(q, 3) for q in quartiles],
        "tflops": round(flops / us * 1e-6, 4) if flops else None,
        "gbps": round(bytes_moved / us * 1e-3, 1) if bytes_moved else None,
        "floor_us": round(floor_us, 3) if floor_us else None,
        "error": error,
        **more,
    }


def errors(ours: torch.Tensor, reference: torch.Tensor) -> dict[str, float]:
    """Frobenius-relative error and largest error over the largest magnitude, against a float64 reference."""
    difference = ours.double() - reference
    return {
        "fro": (difference.norm() / reference.norm().clamp_min(1e-300)).item(),
        "max": (difference.abs().max() / reference.abs().max().clamp_min(1e-300)).item(),
    }


def require(ok: bool, what: str) -> None:
    """Nothing is timed that is not right."""
    if not ok:
        raise RuntimeError(f"xgemm lab: {what} is wrong; not timed")


def sources_digest(paths: Iterable[str]) -> str:
    """sha256 over the lines ``<sha256 of file>  <path>`` of all files under `paths`, sorted bytewise; 16 hex digits."""
    files = sorted(
        (
            file.relative_to(ROOT).as_posix()
            for path in paths
            for file in (ROOT / path).rglob("*")
            if file.is_file() and file.suffix != ".pyc"
        ),
        key=str.encode,
    )
    lines = "".join(f"{hashlib.sha256((ROOT / file).read_bytes()).hexdigest()}  {file}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def sm_clock_mhz() -> int | None:
    """The SM clock of the current device, where nvidia-smi tells it."""
    text = _output_of("nvidia-smi", "--query-gpu=clocks.sm", "--format=csv,noheader,nounits", "-i", "0")
    return int(text) if text.isdigit() else None


def gpu_folder() -> str:
    return torch.cuda.get_device_name().lower().replace(" ", "_")


def write_results(folder: Path, op: str, rows: list[Row], clocks: list[int]) -> Path:
    """Writes ``<folder>/<op>.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{op}.json"
    content = {
        "op": op,
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _output_of("git", "rev-parse", "--short=12", "HEAD"),
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "driver": _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"),
        },
        "clocks_mhz": [min(clocks), max(clocks)] if clocks else None,
        "sources": {"paths": SOURCES, "sha256": sources_digest(SOURCES)},
    }
    head = json.dumps(content, indent=1)[:-2]
    body = ",\n  ".join(json.dumps(r) for r in rows)
    path.write_text(f'{head},\n "rows": [\n  {body}\n ]\n}}\n')
    return path
