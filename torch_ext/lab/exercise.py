"""Exercises: write a step of a ladder yourself; ``python -m torch_ext.lab check 02 mine.cu`` checks, times, places it.

``python -m torch_ext.lab check --list`` names them, ``--copy FOLDER`` copies the skeletons. A skeleton is slow, and
says what to change; its solution is a file of the ladder. Yours is compiled by nvcc for the GPU at hand. Without a GPU,
in a checkout, it runs on the emulator of CUDA kernels that the tests use (tests/emulation): right or wrong, but not how
fast.
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
from dataclasses import dataclass
from pathlib import Path

import torch

from torch_ext import device as gpus
from torch_ext.lab import attention, experiments, ladders, measure, roofline, tiles

SKELETONS = Path(__file__).with_name("exercises")
EMULATOR = Path(experiments.PACKAGES) / "tests" / "emulation" / "build.py"
MAX_PARTIALS = 1 << 20  # of a reduction
BINS, HALF, WAYS, TERMS = 256, 64, 8, 1 << 13  # of exercises 10, 09, 07, 12
Tensors = tuple[torch.Tensor, ...]
Kernel = Callable[..., torch.Tensor]
lab = torch.ops.xgemm_lab


class Wrong(RuntimeError):
    """What the kernel computed is not what it should be, or it did not compile."""


@dataclass(frozen=True)
class Kind:
    """What exercises with one signature compute."""

    sizes: tuple[tuple[int, ...], ...]
    """That are checked."""
    operands: Callable[..., Tensors]
    """(device, *size) -> what the kernel reads."""
    expected: Callable[..., tuple[torch.Tensor, torch.Tensor | float]]
    """The result in float64, and the largest error of each element."""
    call: Callable[..., torch.Tensor]
    """(exercise(), *operands) -> its result."""
    step: Callable[..., Callable[[], torch.Tensor]]
    """(name, *operands) -> a step of the lab that it is shown beside."""
    work: Callable[..., dict[str, float]] = lambda x, *_: {"bytes_moved": 2 * x.numel() * x.element_size()}
    """Operations or bytes of a call."""


@dataclass(frozen=True)
class Exercise:
    """One exercise."""

    file: str
    kind: Kind
    solution: str
    """The lab's file that solves it."""
    around: tuple[str, ...]
    """Steps of the lab that it is shown beside."""
    target: str
    """The one of these whose speed is to be reached."""
    size: tuple[int, ...]
    """What it is timed at."""


def _blank(like: torch.Tensor, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """What is left unwritten is NaN (integers: 0), but where a call is timed."""
    out = like.new_empty(shape, dtype=dtype)
    if out.is_cuda and torch.cuda.is_current_stream_capturing() and out.is_floating_point():
        return out
    return out.fill_(math.nan) if out.is_floating_point() else out.zero_()


def _ints(*sizes: int) -> list[ctypes.c_int]:
    return [ctypes.c_int(size) for size in sizes]


def _long(x: torch.Tensor) -> ctypes.c_longlong:
    return ctypes.c_longlong(x.numel())


def _sgemm(run: Callable, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = _blank(a, a.shape[0], b.shape[1])
    run(a, b, c, *_ints(*c.shape, a.shape[1]))
    return c


def _product(step: str, a: torch.Tensor, b: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A step of the SGEMM ladder, or of the tiling experiment: ``tiled fixed 8``."""
    if step.startswith("tiled "):
        _, variant, tile = step.split()
        return lambda: tiles.lab.tiled_matmul(a, b, variant, int(tile))
    return ladders.sgemm_call(step, a, b)


def _partials(run: Callable, x: torch.Tensor) -> torch.Tensor:
    partials = _blank(x, MAX_PARTIALS)
    count = run(x, partials, _long(x))
    if not 1 <= count <= MAX_PARTIALS:
        raise Wrong(f"expected 1 to {MAX_PARTIALS} partial sums, got {count}")
    return partials[:count]


def _rows(run: Callable, x: torch.Tensor) -> torch.Tensor:
    y = _blank(x, *x.shape)
    run(x, y, *(ctypes.c_longlong(size) for size in x.shape))
    return y


def _masked(device: str, rows: int, cols: int) -> Tensors:
    x = 100 * torch.randn(rows, cols, device=device)
    if cols > 1:
        x[0, : cols // 2] = -math.inf
    return (x,)


def _softmax(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.softmax(x.double(), -1)
    return y, 1e-5 * y + 1e-30


def _flash(run: Callable, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    out = _blank(query, *query.shape)
    heads = query.numel() // (query.shape[-2] * query.shape[-1])
    run(query, key, value, out, *_ints(heads, *query.shape[-2:]))
    return out


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    reference, scale = attention.attention_reference(q, k, v, causal=False)
    return reference, attention.attention_bound(reference, scale)


def _map(run: Callable, *x: torch.Tensor) -> torch.Tensor:
    y = _blank(x[0], *x[0].shape)
    run(*x, y, _long(y))
    return y


def _histogram(run: Callable, x: torch.Tensor) -> torch.Tensor:
    counts = _blank(x, BINS)
    run(x, counts, _long(x))
    return counts


def _maps(
    expected: Callable[..., tuple[torch.Tensor, torch.Tensor]], step: Callable, sizes: tuple[int, ...], **more: object
) -> Kind:
    """An element of y for each of x; x is uniform within 0.9 of 0."""
    operands = lambda device, n: (torch.rand(n, device=device) * 1.8 - 0.9,)  # noqa: E731
    return Kind(tuple((n,) for n in sizes), operands, expected, _map, step, **more)


def _geometric(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.double()
    return (1 - x**TERMS) / (1 - x), 2.0**-20 / (1 - x.abs()) ** 2


def _near(y: torch.Tensor, roundings: float = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return y, roundings * 2**-24 * (y.abs() + 1)


def _ways(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """256 halvings forget x: the fixed point 2 b of y <- y / 2 + b."""
    return _near(2.0 * (torch.arange(x.numel(), device=x.device) % WAYS).double())


def _window(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    sums = [experiments.window_reference(y, 2 * HALF + 1) for y in (x.double(), x.double().abs())]
    return sums[0], 2 * HALF * 2**-24 * sums[1]


def _chains(step: str, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    factors, chains = torch.tensor([0.5, 1.0], device=x.device), int(step.split()[0])
    return lambda: lab.fma_chains(x, factors, 128, chains, TERMS // chains, 8)


def _floor(given: torch.Tensor) -> tuple[torch.Tensor, float]:
    flops, bandwidth, n, steps = given.tolist()
    return torch.tensor(gpus.floor_seconds(2 * steps * n, 8 * n, flops, bandwidth) * 1e6).double(), 1e-3


RAGGED = (1, 2, 31, 32, 33, 255, 256, 257, 511, 513, 4099, 65537)
SGEMM = Kind(
    ((1, 1, 1), (1, 37, 5), (31, 33, 32), (32, 32, 32), (65, 63, 9), (3, 3, 431), (129, 1, 33), (100, 200, 37)),
    lambda device, m, n, k: (torch.randn(m, k, device=device), torch.randn(k, n, device=device)),
    lambda a, b: (
        a.double() @ b.double(),
        ladders.sgemm_bound(a.shape[1]) * (a.double().abs() @ b.double().abs()),
    ),
    _sgemm,
    _product,
    lambda a, b: {"flops": 2 * a.numel() * b.shape[1]},
)
REDUCTION = Kind(
    tuple((n,) for n in (*RAGGED, 1_000_003)),
    # Sums below 2^24: exact, and no element is 0.
    lambda device, n: (2.0 * torch.randint(-8, 8, (n,), device=device) + 1,),
    lambda x: (x.double().sum(), 0.0),
    _partials,
    ladders.reduction_call,
    lambda x: {"bytes_moved": 4 * x.numel()},
)
SOFTMAX = Kind(((1, 1), (3, 2), (5, 31), (7, 256), (3, 257), (2, 5001)), _masked, _softmax, _rows, ladders.softmax_call)
FLASH = Kind(
    ((1, 1, 64), (1, 7, 128), (2, 33, 64), (1, 64, 128), (3, 129, 128), (1, 300, 64)),
    lambda device, *size: tuple(torch.randn(1, *size, device=device).bfloat16() for _ in range(3)),
    _attention,
    _flash,
    lambda step, q, k, v: attention.attention_call(step, q, k, v, False),
    lambda q, *_: {"flops": 4 * q.shape[-2] * q.numel()},
)
ADD = Kind(
    tuple((n,) for n in RAGGED),
    lambda device, n: (torch.randn(n, device=device), torch.randn(n, device=device)),
    lambda a, b: ((a + b).double(), 0.0),
    _map,
    lambda step, a, b: lambda: lab.vector_add(a, b, step),
    lambda a, b: {"bytes_moved": 12 * a.numel()},
)
HISTOGRAM = Kind(
    tuple((n,) for n in RAGGED),
    lambda device, n: (torch.randint(0, BINS, (n,), dtype=torch.int32, device=device),),
    lambda x: (torch.bincount(x, minlength=BINS).double(), 0.0),
    _histogram,
    lambda step, x: lambda: lab.histogram(x, BINS, step == "privatised"),
    lambda x: {"bytes_moved": 4 * x.numel()},
)
PREDICTION = Kind(
    tuple((1 << 20, steps) for steps in (0, 1, 8, 32, 64, 1024)),
    lambda device, n, steps: (torch.tensor([67e12, 4.8e12, n, steps], dtype=torch.float64),),
    _floor,
    lambda run, given: torch.tensor(run(*map(ctypes.c_double, given.tolist()))).double(),
    lambda step, given: lambda: given,
)
_STEPS = ("01_naive", "02_coalesced", "03_shared_tile", "04_block_tile_1d", "cublas")
_TILED = ("tiled fixed 8", "tiled dynamic 8", "tiled dynamic 16", "tiled dynamic 32", "tiled fixed 32", "cublas")
_COPIES = {"copy, blocks of 32": 32, "copy, blocks of 256": 256, "copy, blocks of 1024": 1024}
_REDUCTIONS, _SOFTMAXES = tuple(v for v in ladders.REDUCTION_VERSIONS if v[0] in "vt"), tuple(ladders.SOFTMAX_VARIANTS)
_HISTOGRAMS = ("global atomics", "privatised")
_FLASHES = ("01_materialised", "02_row_a_warp", "03_tiled", "torch")
DIVERGENCE = _maps(_ways, lambda step, x: lambda: lab.paths(x, WAYS, step == "by lane"), RAGGED)
HALO = _maps(_window, lambda step, x: lambda: lab.window_sum(x, 2 * HALF + 1, step == "shared"), RAGGED)
TWICE = _maps(
    lambda x: _near(2 * x.double() + 1),
    lambda step, x: lambda: lab.concurrent_copy(x, _COPIES[step], 1, 1, "full"),
    RAGGED,
)
CHAINS = _maps(_geometric, _chains, (1, 31, 129, 1000), work=lambda x: {"flops": 2 * TERMS * x.numel()})
# fmt: off
EXERCISES = {
    file[:2]: Exercise(f"{file}.cu", kind, f"csrc/lab/{solution}.cu", around, target, size)
    for file, kind, solution, around, target, size in (
        ("01_coalesced", SGEMM, "sgemm/02_coalesced", _STEPS, _STEPS[1], (1024, 1024, 1024)),
        ("02_shared_tile", SGEMM, "sgemm/03_shared_tile", _STEPS, _STEPS[2], (1024, 1024, 1024)),
        ("03_reduction", REDUCTION, "reduction/v6_several_elements", _REDUCTIONS, "v6_several_elements", (1 << 26,)),
        ("04_online_softmax", SOFTMAX, "softmax/03_online", _SOFTMAXES, "online", (ladders.ROWS, 16384)),
        ("05_dynamic_tile", SGEMM, "experiments/tiling", _TILED, "tiled dynamic 32", (1024, 1024, 1024)),
        ("06_flash_row", FLASH, "attention/02_row_a_warp", _FLASHES, "02_row_a_warp", (8, 2048, 128)),
        ("07_divergence", DIVERGENCE, "experiments/divergence", ("by lane", "by warp"), "by warp", (1 << 22,)),
        ("08_coarsening", ADD, "experiments/coarsening", ("plain", "coarsened4", "vector4"), "vector4", (1 << 26,)),
        ("09_halo", HALO, "experiments/privatisation", ("direct", "shared"), "shared", (1 << 24,)),
        ("10_histogram", HISTOGRAM, "experiments/privatisation", _HISTOGRAMS, _HISTOGRAMS[1], (1 << 24,)),
        ("11_occupancy", TWICE, "experiments/copy", tuple(_COPIES), "copy, blocks of 256", (1 << 26,)),
        ("12_chains", CHAINS, "experiments/fma", ("1 chain", "4 chains", "8 chains"), "8 chains", (128 * 132,)),
        ("13_roofline", PREDICTION, "experiments/intensity", (), "", ()),
    )
}
# fmt: on


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
