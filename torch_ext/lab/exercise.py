"""Exercises: write a step of a ladder yourself; ``python -m torch_ext.lab check 02 mine.cu`` checks, times, places it.

``python -m torch_ext.lab check --list`` names them, ``--copy FOLDER`` copies the skeletons. A skeleton is right and
slow, and says what to change; its solution is a file of the ladder. Yours is compiled by nvcc for the GPU at hand.
"""

import argparse
import ctypes
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from torch_ext.lab import attention, ladders, measure, tiles

SKELETONS = Path(__file__).with_name("exercises")
MAX_PARTIALS = 1 << 20  # of a reduction
Kernel = Callable[..., torch.Tensor]


class Wrong(RuntimeError):
    """What the kernel computed is not what it should be, or it did not compile."""


@dataclass(frozen=True)
class Exercise:
    """One exercise."""

    file: str
    kind: str
    """sgemm, reduction, softmax or attention: what it computes, and the ladder it belongs to."""
    solution: str
    """The ladder's file that solves it."""
    around: tuple[str, ...]
    """Steps of the ladder that it is shown beside."""
    size: int
    """What it is timed at."""


_SGEMM = ("01_naive", "02_coalesced", "03_shared_tile", "04_block_tile_1d", "cublas")
EXERCISES = {
    "01": Exercise("01_coalesced.cu", "sgemm", "csrc/lab/sgemm/02_coalesced.cu", _SGEMM, 1024),
    "02": Exercise("02_shared_tile.cu", "sgemm", "csrc/lab/sgemm/03_shared_tile.cu", _SGEMM, 1024),
    "03": Exercise(
        "03_reduction.cu",
        "reduction",
        "csrc/lab/reduction/v6_several_elements.cu",
        tuple(v for v in ladders.REDUCTION_VERSIONS if v[0] in "vt"),
        1 << 26,
    ),
    "04": Exercise(
        "04_online_softmax.cu", "softmax", "csrc/lab/softmax/03_online.cu", tuple(ladders.SOFTMAX_VARIANTS), 16384
    ),
    "05": Exercise(
        "05_dynamic_tile.cu",
        "sgemm",
        "csrc/lab/experiments/tiling.cu",
        ("tiled fixed 8", "tiled dynamic 8", "tiled dynamic 16", "tiled dynamic 32", "tiled fixed 32", "cublas"),
        1024,
    ),
    "06": Exercise(
        "06_flash_row.cu",
        "attention",
        "csrc/lab/attention/02_row_a_warp.cu",
        ("01_materialised", "02_row_a_warp", "03_tiled", "torch"),
        2048,
    ),
}

MATRICES = [(1, 1, 1), (1, 37, 5), (31, 33, 32), (32, 32, 32), (65, 63, 9), (3, 3, 431), (129, 1, 33), (100, 200, 37)]
COUNTS = [1, 2, 31, 32, 33, 255, 256, 257, 511, 513, 65537, 1_000_003]
ROWS = [(1, 1), (3, 2), (5, 31), (7, 256), (3, 257), (2, 5001)]
HEADS = [(1, 1, 64), (1, 7, 128), (2, 33, 64), (1, 64, 128), (3, 129, 128), (1, 300, 64)]


def command(source: Path, library: Path, architecture: str) -> list[str]:
    """How an exercise is compiled."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return [
        nvcc,
        "-shared",
        "-Xcompiler",
        "-fPIC",
        "-O3",
        "-std=c++17",
        "--expt-relaxed-constexpr",  # for a lambda that the occupancy API calls
        f"-arch={architecture}",
        str(source),
        "-o",
        str(library),
    ]


def build(source: Path, architecture: str) -> ctypes.CDLL:
    """Compiles and loads a file. Raises Wrong with the compiler's words."""
    with tempfile.TemporaryDirectory(prefix="xgemm_exercise_") as folder:  # a library that is loaded needs no file
        library = Path(folder) / "exercise.so"
        try:
            done = subprocess.run(command(source, library, architecture), capture_output=True, text=True)
        except FileNotFoundError:
            raise Wrong("there is no nvcc: it comes with the CUDA toolkit") from None
        if done.returncode:
            raise Wrong(f"{source} does not compile:\n{done.stderr}")
        loaded = ctypes.CDLL(str(library))
    if not hasattr(loaded, "exercise"):
        raise Wrong(f'{source} has no function `extern "C" ... exercise(...)`')
    return loaded


def kernel(exercise: Exercise, library: ctypes.CDLL) -> Kernel:
    """The exercise as a function of tensors on the GPU; what it leaves unwritten is NaN, but where it is timed."""
    call = library.exercise
    call.restype = ctypes.c_int if exercise.kind == "reduction" else None

    def run(*arguments: object) -> int | None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return call(*(ctypes.c_void_p(x.data_ptr()) if isinstance(x, torch.Tensor) else x for x in arguments), stream)

    def blank(like: torch.Tensor, *shape: int) -> torch.Tensor:
        out = like.new_empty(shape)
        return out if torch.cuda.is_current_stream_capturing() else out.fill_(math.nan)

    def sgemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        c = blank(a, a.shape[0], b.shape[1])
        run(a, b, c, *(ctypes.c_int(size) for size in (*c.shape, a.shape[1])))
        return c

    def reduction(x: torch.Tensor) -> torch.Tensor:
        partials = blank(x, MAX_PARTIALS)
        count = run(x, partials, ctypes.c_longlong(x.numel()))
        if not 1 <= count <= MAX_PARTIALS:
            raise Wrong(f"expected 1 to {MAX_PARTIALS} partial sums, got {count}")
        return partials[:count]

    def softmax(x: torch.Tensor) -> torch.Tensor:
        y = blank(x, *x.shape)
        run(x, y, *(ctypes.c_longlong(size) for size in x.shape))
        return y

    def flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        out = blank(query, *query.shape)
        heads = query.numel() // (query.shape[-2] * query.shape[-1])
        run(query, key, value, out, *(ctypes.c_int(size) for size in (heads, *query.shape[-2:])))
        return out

    return {"sgemm": sgemm, "reduction": reduction, "softmax": softmax, "attention": flash}[exercise.kind]


def _require(error: torch.Tensor, bound: torch.Tensor | float, what: str) -> None:
    bad = ~(error <= bound)  # NaN is wrong too
    if bad.any():
        at = bad.nonzero()[0].tolist()
        hint = "; all are NaN: did the kernel start?" if error.isnan().all() else ""
        raise Wrong(f"{what}: {int(bad.sum())} of {bad.numel()} wrong, the first at {at}{hint}")


def check(exercise: Exercise, run: Kernel, device: str = "cuda") -> int:
    """Compares with float64 on ragged sizes; the number of sizes. Raises Wrong at the first that differs."""
    if exercise.kind == "sgemm":
        for m, n, k in MATRICES:
            a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
            scale = a.double().abs() @ b.double().abs()
            error = (run(a, b).double() - a.double() @ b.double()).abs()
            _require(error, ladders.sgemm_bound(k) * scale, f"{m} x {k} times {k} x {n}")
        return len(MATRICES)
    if exercise.kind == "reduction":
        for n in COUNTS:
            x = 2.0 * torch.randint(-8, 8, (n,), device=device) + 1  # sums below 2^24: exact, and no element is 0
            error = (run(x).double().sum() - x.double().sum()).abs()
            _require(error, 0.0, f"sum of {n}")
        return len(COUNTS)
    if exercise.kind == "attention":
        for heads, length, d in HEADS:
            q, k, v = (torch.randn(heads, length, d, device=device).bfloat16() for _ in range(3))
            reference, scale = attention.attention_reference(q, k, v, causal=False)
            error = (run(q, k, v).double() - reference).abs()
            _require(error, attention.attention_bound(reference, scale), f"attention of {heads} x {length} x {d}")
        return len(HEADS)
    for rows, cols in ROWS:
        x = 100 * torch.randn(rows, cols, device=device)
        if cols > 1:
            x[0, : cols // 2] = -math.inf  # masked elements
        reference = torch.softmax(x.double(), -1)
        _require((run(x).double() - reference).abs(), 1e-5 * reference + 1e-30, f"softmax of {rows} x {cols}")
    return len(ROWS)


def _product(step: str, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A step of the SGEMM ladder, or of the tiling experiment: ``tiled fixed 8``."""
    if step.startswith("tiled "):
        _, variant, tile = step.split()
        return lambda: tiles.lab.tiled_matmul(a, b, variant, int(tile))
    return ladders.sgemm_call(step, a, b)


def place(exercise: Exercise, run: Kernel) -> list[measure.Row]:
    """Rows of the ladder's steps and of the exercise (``yours``), fastest last."""
    with torch.inference_mode(), measure.full_precision():
        return _place(exercise, run)


def _place(exercise: Exercise, run: Kernel) -> list[measure.Row]:
    n = exercise.size
    if exercise.kind == "sgemm":
        a, b = torch.randn(n, n, device="cuda"), torch.randn(n, n, device="cuda")
        calls = {step: _product(step, a, b) for step in exercise.around}
        calls["yours"], work = lambda: run(a, b), {"flops": 2 * n**3}
    elif exercise.kind == "reduction":
        x = torch.randn(n, device="cuda")
        calls = {step: ladders.reduction_call(step, x) for step in exercise.around}
        calls["yours"], work = lambda: run(x), {"bytes_moved": 4 * n}
    elif exercise.kind == "attention":
        q, k, v = (torch.randn(1, 8, n, 128, device="cuda").bfloat16() for _ in range(3))
        calls = {step: attention.attention_call(step, q, k, v, False) for step in exercise.around}
        calls["yours"], work = lambda: run(q, k, v), {"flops": 4 * n * q.numel()}
    else:
        x = torch.randn(ladders.ROWS, n, device="cuda")
        calls = {step: ladders.softmax_call(step, x) for step in exercise.around}
        calls["yours"], work = lambda: run(x), {"bytes_moved": 8 * x.numel()}
    rows = [
        measure.row(f"size {n}", name, measure.time_us(call, 0.1), shape={"n": n}, **work)
        for name, call in calls.items()
    ]
    return sorted(rows, key=lambda row: -row["us"])


def draw(rows: list[measure.Row], title: str, path: Path) -> None:
    """A bar a step, yours in red."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    unit = "tflops" if rows[0]["tflops"] else "gbps"
    colours = ["tab:red" if row["contender"] == "yours" else "tab:blue" for row in rows]
    axes.barh([row["contender"] for row in rows], [row[unit] for row in rows], color=colours)
    axes.set(xlabel={"tflops": "TFLOP/s", "gbps": "GB/s"}[unit], title=title)
    figure.savefig(path)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_ext.lab check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("number", nargs="?", choices=list(EXERCISES), help="the exercise")
    parser.add_argument("source", nargs="?", type=Path, help="your file (default: the skeleton as it is)")
    parser.add_argument("--list", action="store_true", help="name the exercises and their solutions")
    parser.add_argument("--copy", type=Path, metavar="FOLDER", help="copy the skeletons there")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw where your kernel stands")
    arguments = parser.parse_args(argv)
    if arguments.list or arguments.copy:
        for number, e in EXERCISES.items():
            print(f"{number}  {e.file}; solution: {e.solution}")
            if arguments.copy:
                arguments.copy.mkdir(parents=True, exist_ok=True)
                shutil.copy(SKELETONS / e.file, arguments.copy)
        return 0
    if arguments.number is None:
        parser.error("which exercise? --list names them")
    if not torch.cuda.is_available():
        print("Exercises run on the GPU: there is no NVIDIA GPU here.")
        return 1
    e = EXERCISES[arguments.number]
    try:
        major, minor = torch.cuda.get_device_capability()
        run = kernel(e, build(arguments.source or SKELETONS / e.file, f"sm_{major}{minor}"))
        print(f"Right at {check(e, run)} sizes.")
        rows = place(e, run)
    except Wrong as reason:
        print(reason)
        return 1
    except RuntimeError as reason:  # CUDA's: what it accessed is not there
        print(f"The kernel failed: {str(reason).partition(chr(10))[0]}")
        return 1
    for row in rows:
        rate = f"{row['tflops'] * 1e3:,.0f} GFLOP/s" if row["tflops"] else f"{row['gbps']:,.0f} GB/s"
        print(
            f"{'-> ' if row['contender'] == 'yours' else '   '}{row['contender']:<24}{row['us']:>12,.1f} us  {rate:>16}"
        )
    if arguments.plot:
        draw(rows, f"Exercise {arguments.number}, {torch.cuda.get_device_name()}", arguments.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
