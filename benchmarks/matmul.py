"""torch.ops.xgemm.matmul against torch.matmul (TF32 off and, for fp32, on)."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.common import Case, Contender, Options, compiled, main, sum_tolerance

OP = "matmul"
SOURCES = ["csrc/device", "csrc/matmul"]


@dataclass(frozen=True)
class Shape:
    """C[m, n] = A[m, k] B[k, n], `batch` of them; a layout letter t says that the operand is stored transposed.

    Full range: numbers spread over 24 decades, which fp32 "highest" cannot carry in scaled fp16 parts.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    layout: str = "nn"
    full_range: bool = False

    @property
    def name(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        layout = f" {self.layout}" if self.layout != "nn" else ""
        return f"{batch}{self.m}x{self.n}x{self.k}{layout}" + (" full range" if self.full_range else "")


def shapes(*sizes: tuple[int, ...], layout: str = "nn") -> list[Shape]:
    return [Shape(*size, layout=layout) for size in sizes]


# x W^T of the projections (qkv; out) and the MLP (up, down) of transformer layers: tokens, hidden size, which.
MLP = {768: 3072, 1024: 4096, 2048: 8192, 4096: 14336, 5120: 13824, 8192: 28672}
LAYERS = [
    *((1, 768, "qkv"), (128, 768, "up"), (2048, 768, "down"), (8192, 768, "qkv")),
    *((1, 1024, "up"), (16, 1024, "qkv"), (2048, 1024, "up"), (8192, 1024, "down")),
    *((16, 2048, "up"), (128, 2048, "qkv"), (2048, 2048, "down"), (8192, 2048, "up")),
    *((1, 4096, "qkv"), (16, 4096, "out"), (128, 4096, "down"), (2048, 4096, "up"), (8192, 4096, "qkv")),
    *((1, 5120, "up"), (16, 5120, "down"), (128, 5120, "up"), (2048, 5120, "qkv")),
    *((1, 8192, "down"), (16, 8192, "qkv"), (128, 8192, "up"), (8192, 8192, "out")),
]


def layer(tokens: int, hidden: int, which: str) -> Shape:
    n, k = {
        "qkv": (3 * hidden, hidden),
        "out": (hidden, hidden),
        "up": (MLP[hidden], hidden),
        "down": (hidden, MLP[hidden]),
    }[which]
    return Shape(tokens, n, k, layout="nt")


# What a report sums up: M, N, K. A shape may be in several groups.
GROUPS: dict[str, list[Shape]] = {
    "peers": shapes(
        *((n, n, n) for n in (128, 256, 512, 1024, 2048, 4096, 8192)),
        *((8192, 8192, 1024), (16, 4096, 4096), (1, 4096, 4096), (64, 8192, 8192), (4096, 4096, 14336)),
        *((4096, 14336, 4096), (512, 512, 65536), (8192, 8192, 128)),
        *((n, n, n) for n in (1000, 4097, 16384)),
    ),
    "few rows": shapes(
        *((m, 14336, 4096) for m in (1, 4, 16, 32, 64)),
        *((m, 4096, 14336) for m in (1, 16, 64)),
        *((1, 4096, 4096), (8, 6144, 4096), (64, 4096, 4096)),
        layout="nt",
    ),
    "unaligned": [
        *shapes((4097, 4097, 4097), (4096, 4096, 4095), (4096, 4095, 4096), (4095, 4095, 4095), (2049, 2049, 2049)),
        *shapes((1023, 1025, 1023), (8192, 4097, 4096), (128, 4097, 4097), (16, 4095, 4097), (8191, 1021, 509)),
        *shapes((2048, 50257, 768), layout="nt"),
    ],
    "layers": [layer(*entry) for entry in LAYERS],
    "odd sizes": shapes(*((n, n, n) for n in (127, 509, 1021, 2047, 3001)), (1023, 513, 2049)),
    "tall or flat": shapes((65536, 64, 64), (65536, 128, 512), (64, 64, 65536), (128, 65536, 128), (262144, 32, 256)),
    "batched": [Shape(1024, 1024, 1024, batch=32), Shape(128, 128, 128, batch=1024)],
    "transposed": [Shape(4096, 4096, 4096, layout=layout) for layout in ("nt", "tn", "tt")],
    "full range": [
        *(Shape(n, n, n, full_range=True) for n in (1024, 2048, 4096)),
        Shape(4096, 4096, 4096, layout="tn", full_range=True),
    ],
}
ONLY_BF16, ONLY_HIGHEST = {"unaligned"}, {"full range"}
QUICK = shapes((512, 512, 512), (4096, 4096, 4096), (16, 4096, 4096), (1000, 1000, 1000))
CPU = shapes((64, 64, 64), (256, 256, 256), (1, 512, 512), (65, 97, 33))
EXTRA = [
    *(
        layer(m, hidden, which)
        for hidden in MLP
        for m in (1, 16, 128, 2048, 8192)
        for which in ["qkv", "out", "up", "down"]
    ),
    *shapes((257, 257, 257), (1537, 1537, 1537), (4095, 4096, 4096), (8191, 127, 1021)),
    *(Shape(1024, 1024, 1024, layout=layout) for layout in ("nt", "tn", "tt")),
]


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def operand(
    shape: Shape, rows: int, columns: int, order: str, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    lead = (shape.batch,) if shape.batch > 1 else ()
    stored = torch.randn(*lead, *((columns, rows) if order == "t" else (rows, columns)), dtype=dtype, device=device)
    if shape.full_range:
        stored = 10.0 ** torch.empty_like(stored).uniform_(-12, 12) * stored.sign()
    return stored.mT if order == "t" else stored


def reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The product in float64, and |A||B|: the scale that SGEMM's error bound speaks of."""
    a, b = a.double(), b.double()
    return a @ b, a.abs() @ b.abs()


def case(shape: Shape, dtype: torch.dtype, mode: str | None, options: Options, groups: tuple[str, ...] = ()) -> Case:
    """One shape; `mode` is the precision of an fp32 product and None for other dtypes."""
    m, n, k, batch = shape.m, shape.n, shape.k, shape.batch
    ours = partial(torch.ops.xgemm.matmul, precision=mode) if mode else torch.ops.xgemm.matmul
    # cuBLAS adds partial sums of split K in half precision (torch allows it unless told not to).
    rounded = torch.finfo(dtype).eps / 4 if dtype.itemsize == 2 else 0.0
    peers = [Contender("torch", torch.matmul, tolerance=rounded)]
    if mode == "high" and options.cuda:
        peers = []  # TF32's peer is TF32
    peers += compiled(torch.matmul, options)
    if mode and options.cuda:
        peers.append(Contender("torch_tf32", torch.matmul, tf32, tolerance=2.0**-9))
    return Case(
        name=shape.name,
        shape={"m": m, "n": n, "k": k, "batch": batch, "layout": shape.layout},
        dtype=dtype,
        make=lambda device: (
            operand(shape, m, k, shape.layout[0], dtype, device),
            operand(shape, k, n, shape.layout[1], dtype, device),
        ),
        contenders=[Contender("xgemm", ours, tolerance={"high": 2.0**-9, "medium": 2.0**-6}.get(mode, 0.0)), *peers],
        reference=reference,
        tolerance=sum_tolerance(k, dtype),
        read=batch * (m * k + k * n) * dtype.itemsize,
        written=batch * m * n * dtype.itemsize,
        flops=2.0 * batch * m * n * k,
        mode=mode,
        groups=groups,
        eager=not groups or "peers" in groups,
    )


def wanted(group: str, dtype: torch.dtype, mode: str | None) -> bool:
    if group in ONLY_HIGHEST:
        return mode == "highest"
    return dtype == torch.bfloat16 or group not in ONLY_BF16


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        return [case(shape, torch.float32, "highest", options) for shape in CPU]
    modes = options.modes or (("highest",) if options.quick else ("highest", "high"))
    kinds: list[tuple[torch.dtype, str | None]] = [(torch.float32, mode) for mode in modes] + [(torch.bfloat16, None)]
    if options.quick:
        return [case(shape, *kind, options) for shape in QUICK for kind in kinds]
    kinds.append((torch.float16, None))
    members: dict[Shape, list[str]] = {}
    for name, group in GROUPS.items():
        for shape in group:
            members.setdefault(shape, []).append(name)
    found = [
        case(shape, dtype, mode, options, groups)
        for shape, names in members.items()
        for dtype, mode in kinds
        if (groups := tuple(name for name in names if wanted(name, dtype, mode)))
    ]
    extra = [shape for shape in dict.fromkeys(EXTRA) if shape not in members] if options.all else []
    return found + [case(shape, *kind, options) for shape in extra for kind in kinds]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
