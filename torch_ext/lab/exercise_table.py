"""What exercises compute, their operands and results, and the table of them; exercise.py checks and times a file."""

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from torch_ext import device as gpus
from torch_ext.lab import attention, experiments, ladders, tiles

MAX_PARTIALS = 1 << 20  # of a reduction
BINS, HALF, WAYS, TERMS = 256, 64, 8, 1 << 13  # of exercises 10, 09, 07, 12
Tensors = tuple[torch.Tensor, ...]
lab = torch.ops.xgemm_lab


class Wrong(RuntimeError):
    """What the kernel computed is not what it should be, or it did not compile."""


@dataclass(frozen=True)
class Kind:
    """What exercises with one signature compute."""

    sizes: tuple[tuple[int, ...], ...]
    """The sizes that are checked."""
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
    """The size that it is timed at."""


def _blank(like: torch.Tensor, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Filled with NaN (integers: 0), so that what a kernel leaves unwritten shows; not where a call is timed."""
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
