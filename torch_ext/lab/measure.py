"""How the lab measures and what it writes: CUDA-graph timing, result rows, the result files."""

import contextlib
import datetime
import functools
import json
import re
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]
Call = Callable[[], torch.Tensor]
Describe = Callable[[Sequence[str]], dict[str, Any]]  # what a result file says of these folders and files of sources


def make_room() -> None:
    """Frees cached memory where a graph could lack memory: it takes its own, and a capture cannot free the cache."""
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    free, _ = torch.cuda.mem_get_info()
    if free < cached:  # the graph needs what the calls before it needed, which is cached now
        torch.cuda.empty_cache()


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """torch.mm of float32 is cuBLAS's float32, not TF32, whatever the caller has set."""
    matmul = torch.backends.cuda.matmul
    try:
        before = torch.get_float32_matmul_precision()
        restore = torch.set_float32_matmul_precision
        restore("highest")
    except RuntimeError:  # it was set in torch's newer way, and torch refuses to read it in the older one
        before = matmul.fp32_precision
        restore = functools.partial(setattr, matmul, "fp32_precision")
        restore("ieee")
    try:
        yield
    finally:
        restore(before)


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
        make_room()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin()  # not torch.cuda.graph: it empties the allocator's cache each time
        try:
            for _ in range(calls):
                call()
        finally:
            graph.capture_end()
        if once < 0.01:  # uploads the graph, which a longer call hides
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


ROUNDS = 5


def times_us(calls: Mapping[str, Callable[[], object]], budget_s: float) -> dict[str, dict[str, Any]]:
    """For calls that may differ by less than a measurement: several rounds of all of them.

    Each call's median round is its ``timing``; ``spread_us`` is the least and the largest median of a round.
    """
    rounds = [{name: time_us(call, budget_s / ROUNDS) for name, call in calls.items()} for _ in range(ROUNDS)]
    found = {}
    for name in calls:
        of_call = sorted(r[name] for r in rounds)
        spread = [round(of_call[0][0], 3), round(of_call[-1][0], 3)]
        found[name] = {"timing": of_call[ROUNDS // 2], "spread_us": spread}
    return found


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
    """One result row; `flops` and `bytes_moved` of a call become rates, `more` is kept as it is.

    Of `more`, ``document`` is a document's figure for this very set-up, ``elsewhere`` one that no document prints,
    ``remark`` a word of ours.
    """
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


def share(work: float, timing: tuple[float, tuple[float, float]], peak: float) -> float | None:
    """The rate of a call's operations or bytes over a peak rate; None where that is not known."""
    return round(work / timing[0] * 1e6 / peak, 4) if peak else None


def floor_us(bytes_moved: float, bandwidth: float) -> float | None:
    """The time of a call's bytes at the peak bandwidth; None where that is not known."""
    return bytes_moved / bandwidth * 1e6 if bandwidth else None


def mm(a: torch.Tensor, b: torch.Tensor, *, tf32: bool) -> torch.Tensor:
    """torch.mm with or without TF32, whatever is set."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, tf32
    try:
        return torch.mm(a, b)
    finally:
        matmul.allow_tf32 = before


def product(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A B and |A||B| in float64: a reference, and what its errors are measured against."""
    return a.double() @ b.double(), a.double().abs() @ b.double().abs()


def peak_bytes(call: Callable[[], object]) -> int:
    """Device memory that a call takes on top of what is allocated, its result included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


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


def _output_of(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _smi(field: str) -> str:
    """A field of the current device by nvidia-smi, which has numbers of its own for devices; "" where it tells none."""
    uuid = f"GPU-{torch.cuda.get_device_properties().uuid}"
    return _output_of("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "-i", uuid)


def sm_clock_mhz() -> int | None:
    """The SM clock of the current device, where nvidia-smi tells it."""
    text = _smi("clocks.sm")
    return int(text) if text.isdigit() else None


def amount(n: int) -> str:
    """2^24, or 1,000 where n is no power of two."""
    return f"2^{n.bit_length() - 1}" if n & (n - 1) == 0 else f"{n:,}"


def gpu_folder() -> str:
    """'NVIDIA H200' -> 'nvidia_h200'."""
    return re.sub(r"[^a-z0-9]+", "_", torch.cuda.get_device_name().lower()).strip("_")


def describe(op: str, rows: list[Row], clocks: list[int], more: dict[str, Any]) -> dict[str, Any]:
    """A result file's content; `more` is what the caller knows beside (the conclusion; in a checkout: its sources)."""
    return {
        "op": op,
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "versions": {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "driver": _smi("driver_version"),
        },
        "clocks_mhz": [min(clocks), max(clocks)] if clocks else [],
        **more,
        "rows": [{key: value for key, value in row.items() if key != "experiment"} for row in rows],
    }


def write_results(folder: Path, document: dict[str, Any]) -> Path:
    """Writes ``<folder>/<op>.json``, whole: a run measures all rows of a file. One row a line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{document['op']}.json"
    head = json.dumps({key: value for key, value in document.items() if key != "rows"}, indent=1)
    rows = ",\n".join("  " + json.dumps(row) for row in document["rows"])
    path.write_text(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n')
    return path


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def exact(call: Call, expected: torch.Tensor, what: str) -> None:
    require(torch.equal(call(), expected), what)


def close(call: Call, reference: torch.Tensor, scale: torch.Tensor, roundings: float, what: str) -> dict[str, float]:
    """Every element within `roundings` roundings of `scale`; returns the error for the row."""
    result = call()
    difference = (result.double() - reference).abs()
    require(bool((difference <= roundings * 2**-24 * scale).all()), what)
    return errors(result, reference)
