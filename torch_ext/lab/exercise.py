"""Exercises: write a step of a ladder yourself; ``python -m torch_ext.lab check 02 mine.cu`` checks, times, places it.

``python -m torch_ext.lab check --list`` names them, ``--copy FOLDER`` copies the skeletons. A skeleton is slow, and
says what to change; its solution is a file of the lab (exercise_table.py). Yours is compiled by nvcc for the GPU at
hand. Without a GPU, in a checkout, it runs on the emulator of CUDA kernels that the tests use (tests/emulation): right
or wrong, but not how fast.
"""

import argparse
import ctypes
import math
import mmap
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from torch_ext import device as gpus
from torch_ext.lab import experiments, measure, roofline
from torch_ext.lab.exercise_table import EXERCISES, PREDICTION, REDUCTION, Exercise, Wrong

SKELETONS = Path(__file__).with_name("exercises")
EMULATOR = Path(experiments.PACKAGES) / "tests" / "emulation" / "build.py"
# --expt-relaxed-constexpr: for a lambda that the occupancy API calls
FLAGS = ("-shared", "-Xcompiler", "-fPIC", "-O3", "-std=c++17", "--expt-relaxed-constexpr")
Kernel = Callable[..., torch.Tensor]


def command(source: Path, library: Path, architecture: str) -> list[str]:
    """How an exercise is compiled."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    return [nvcc, *FLAGS, f"-arch={architecture}", str(source), "-o", str(library)]


def build(source: Path, architecture: str | None) -> ctypes.CDLL:
    """Compiles and loads a file; no architecture: for the emulator. Raises Wrong with the compiler's words."""
    if not re.search(r'extern\s+"C"[^;{]*\bexercise\s*\(', source.read_text()):
        raise Wrong(f'{source} has no function `extern "C" ... exercise(...)`')
    with tempfile.TemporaryDirectory(prefix="xgemm_exercise_") as folder:  # a library that is loaded needs no file
        library = Path(folder) / "exercise.so"
        emulated = [sys.executable, str(EMULATOR), str(source), "-o", str(library), "--exercise"]
        try:
            done = subprocess.run(
                command(source, library, architecture) if architecture else emulated, capture_output=True, text=True
            )
        except FileNotFoundError:
            raise Wrong("there is no nvcc: it comes with the CUDA toolkit") from None
        if done.returncode:
            raise Wrong(f"{source} does not compile:\n{done.stderr}")
        return ctypes.CDLL(str(library))


def kernel(exercise: Exercise, library: ctypes.CDLL) -> Kernel:
    """The exercise as a function of tensors: on the GPU, or on the CPU where the library is the emulator's."""
    result = {REDUCTION: ctypes.c_int, PREDICTION: ctypes.c_double}.get(exercise.kind)
    emulated = hasattr(library, "emulation_seed")
    if emulated:
        call = ctypes.CFUNCTYPE(result)(ctypes.c_void_p.in_dll(library, "guarded_exercise").value)
        library.emulation_error.restype = ctypes.c_char_p
    else:
        call = library.exercise
        call.restype = result
    orders = iter(range(1 << 30))

    def run(*arguments: object) -> int | float | None:
        stream = [] if exercise.kind is PREDICTION else [None if emulated else torch.cuda.current_stream().cuda_stream]
        arrays = {i: x for i, x in enumerate(arguments) if isinstance(x, torch.Tensor)}
        if emulated:
            library.emulation_seed(ctypes.c_ulonglong(next(orders)))
            arrays = {i: guarded(x) for i, x in arrays.items()}
        given = [ctypes.c_void_p(arrays[i].data_ptr()) if i in arrays else x for i, x in enumerate(arguments)]
        returned = call(*given, *map(ctypes.c_void_p, stream))
        if emulated and (found := library.emulation_error().decode()):
            raise Wrong(f"The emulator found: {found}")
        if emulated:
            for i, x in arrays.items():
                arguments[i].copy_(x)
        return returned

    return lambda *operands: exercise.kind.call(run, *operands)


def guarded(x: torch.Tensor) -> torch.Tensor:
    """A copy that ends where an inaccessible page begins (rounded up to 16 bytes): what reads on crashes."""
    size = x.numel() * x.element_size()
    room = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, room + mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + room), ctypes.c_size_t(mmap.PAGESIZE), 0)
    return (
        torch.frombuffer(memory, dtype=x.dtype, count=x.numel(), offset=room - -(-size // 16) * 16)
        .view(x.shape)
        .copy_(x)
    )


def check(exercise: Exercise, run: Kernel, device: str = "cuda", most: float = math.inf) -> int:
    """Compares with float64 at ragged sizes of up to `most` elements; how many. Raises Wrong where one differs."""
    sizes = [size for size in exercise.kind.sizes if math.prod(size) <= most or exercise.kind is PREDICTION]
    for size in sizes:
        operands = exercise.kind.operands(device, *size)
        reference, bound = exercise.kind.expected(*operands)
        result = run(*operands).double()
        if exercise.kind is REDUCTION:
            result = result.sum()
        error = (result - reference).abs()
        bad = ~(error <= bound)  # NaN is wrong too
        if bad.any():
            at = bad.nonzero()[0].tolist()
            hint = "; all are NaN: did the kernel start?" if error.isnan().all() else ""
            of = " x ".join(map(str, size))
            raise Wrong(f"Size {of}: {int(bad.sum())} of {bad.numel()} wrong, the first at {at}{hint}")
    return len(sizes)


def place(exercise: Exercise, run: Kernel) -> list[measure.Row]:
    """Rows of the lab's steps and of the exercise (``yours``), fastest last."""
    with torch.inference_mode(), measure.full_precision():
        operands = tuple(x.contiguous() for x in exercise.kind.operands("cuda", *exercise.size))
        calls = {step: exercise.kind.step(step, *operands) for step in exercise.around}
        calls["yours"], work = lambda: run(*operands), exercise.kind.work(*operands)
        size = {"n": exercise.size[-1]}
        case = f"size {' x '.join(map(str, exercise.size))}"
        rows = [measure.row(case, name, measure.time_us(call, 0.1), shape=size, **work) for name, call in calls.items()]
    return sorted(rows, key=lambda row: -row["us"])


def verdict(exercise: Exercise, rows: list[measure.Row]) -> str:
    """Whether the target's speed is reached, a tenth aside."""
    us = {row["contender"]: row["us"] for row in rows}
    speed = us[exercise.target] / us["yours"]
    return f"{'Reached' if speed >= 0.9 else 'Not reached'}: {speed:.0%} of the speed of {exercise.target}."


def untouched(exercise: Exercise, source: Path) -> bool:
    """Whether a file is the skeleton but for comments and spaces."""
    codes = [re.sub(r"//[^\n]*|\s+", "", path.read_text()) for path in (source, SKELETONS / exercise.file)]
    return codes[0] == codes[1]


def predicted(run: Kernel, n: int = 1 << 26) -> bool:
    """Prints times of the intensity experiment beside the prediction's; whether these are near and not above."""
    gpu, near = gpus.limits(), []
    x = torch.randn(n, device="cuda")
    for steps in roofline.STEPS[::2]:
        ours = run(torch.tensor([gpu.fp32_flops, gpu.bandwidth, n, steps], dtype=torch.float64)).item()
        us, _ = measure.time_us(lambda steps=steps: roofline.lab.intensity(x, steps), 0.1)
        near.append(0.5 * us <= ours <= 1.02 * us)
        print(f"{steps:>5} steps{us:>12,.1f} us, predicted {ours:>12,.1f}{'' if near[-1] else '  <-'}")
    return all(near)


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


EMULATED = 999_999  # elements, or multiply-adds of a product, at most: a thread of the emulator is a fiber
NOT_CHECKED = (
    "Not checked here: how fast it is, bank conflicts, caches, registers, whether nvcc takes it, and lock step within "
    "a warp (a missing __syncwarp or volatile)."
)
# In a process of its own, which may crash.
IN_A_PROCESS = """
import sys
sys.path.append(sys.argv[1])
from torch_ext.lab import exercise
sys.exit(exercise.emulate(*sys.argv[2:]))
"""


def emulate(number: str, source: str) -> int:
    """Checks a file on the emulator, in this process."""
    e = EXERCISES[number]
    try:
        run = kernel(e, build(Path(source), None))
        sizes = [check(e, run, "cpu", EMULATED) for _ in range(2)]
    except Wrong as reason:
        print(reason)
        return 1
    if untouched(e, Path(source)):
        print("This is the skeleton: it computes the right result, slowly. Nothing is solved yet.")
        return 1
    print(f"Right at {sizes[0]} sizes, each in two orders of threads, on the emulator.")
    print(NOT_CHECKED)
    return 0


def _on_the_emulator(number: str, source: Path) -> int:
    if not EMULATOR.exists():
        print("There is no NVIDIA GPU here, and the emulator of CUDA kernels comes with a checkout of the repository.")
        return 1
    arguments = [sys.executable, "-c", IN_A_PROCESS, experiments.PACKAGES, number, str(source.resolve())]
    code = subprocess.run(arguments).returncode
    if code < 0:
        print(
            "The kernel crashed: it accessed what lies behind the end of an array, or a vector at an address that is "
            "no multiple of its size."
        )
    return 1 if code else 0


def _on_the_gpu(e: Exercise, source: Path, plot: Path | None, title: str) -> int:
    try:
        major, minor = torch.cuda.get_device_capability()
        run = kernel(e, build(source, f"sm_{major}{minor}"))
        sizes = check(e, run)
        new = not untouched(e, source)
        print(f"Right at {sizes} sizes." if new else "This is the skeleton: it computes the right result, slowly.")
        if e.kind is PREDICTION:
            reached = predicted(run)
            print("Reached." if reached else "Not reached.")
            return 0 if reached else 1
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
    text = verdict(e, rows)
    print(text)
    if plot:
        draw(rows, title, plot)
    return 0 if new and text.startswith("Reached") else 1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m torch_ext.lab check", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("number", nargs="?", choices=list(EXERCISES), help="the exercise")
    parser.add_argument("source", nargs="?", type=Path, help="your file (default: the skeleton as it is)")
    parser.add_argument("--list", action="store_true", help="name the exercises and their solutions")
    parser.add_argument("--copy", type=Path, metavar="FOLDER", help="copy the skeletons there")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw where your kernel stands")
    parser.add_argument("--emulate", action="store_true", help="on the emulator, though there is a GPU")
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
    e = EXERCISES[arguments.number]
    source = arguments.source or SKELETONS / e.file
    if not source.exists():
        parser.error(f"there is no {source}")
    if arguments.emulate or not torch.cuda.is_available():
        return _on_the_emulator(arguments.number, source)
    return _on_the_gpu(e, source, arguments.plot, f"Exercise {arguments.number}, {torch.cuda.get_device_name()}")


if __name__ == "__main__":
    sys.exit(main())
