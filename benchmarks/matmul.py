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
    """C[m, n] = A[m, k] B[k, n], `batch` of them; a layout letter t says that the operand is stored transposed."""

    m: int
    n: int
    k: int
    batch: int = 1
    layout: str = "nn"

    @property
    def name(self) -> str:
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{batch}{self.m}x{self.n}x{self.k}" + (f" {self.layout}" if self.layout != "nn" else "")


# The shapes of the peers' table (M, N, K).
PEERS = [
    Shape(*shape)
    for shape in [
        (128, 128, 128),
        (256, 256, 256),
        (512, 512, 512),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (8192, 8192, 1024),
        (16, 4096, 4096),
        (1, 4096, 4096),
        (64, 8192, 8192),
        (4096, 4096, 14336),
        (4096, 14336, 4096),
        (512, 512, 65536),
        (8192, 8192, 128),
        (1000, 1000, 1000),
        (4097, 4097, 4097),
        (16384, 16384, 16384),
    ]
]
QUICK = [Shape(512, 512, 512), Shape(4096, 4096, 4096), Shape(16, 4096, 4096), Shape(1000, 1000, 1000)]
CPU = [Shape(64, 64, 64), Shape(256, 256, 256), Shape(1, 512, 512), Shape(65, 97, 33)]


def llm_shapes() -> Iterator[Shape]:
    """x W^T of the projections (QKV, out) and the MLP (up, down) of transformer layers, for several token counts."""
    for hidden, mlp in [(768, 3072), (1024, 4096), (2048, 8192), (4096, 14336), (5120, 13824), (8192, 28672)]:
        for tokens in (1, 16, 128, 2048, 8192):
            for n, k in [(3 * hidden, hidden), (hidden, hidden), (mlp, hidden), (hidden, mlp)]:
                yield Shape(tokens, n, k, layout="nt")


EXTRA = [
    *(Shape(n, n, n) for n in (127, 257, 509, 1021, 1537, 2047, 2049, 3001)),
    Shape(4096, 4096, 4095),
    Shape(4096, 4095, 4096),
    Shape(4095, 4096, 4096),
    Shape(1023, 513, 2049),
    Shape(8191, 127, 1021),
    Shape(65536, 64, 64),
    Shape(65536, 128, 512),
    Shape(64, 64, 65536),
    Shape(128, 65536, 128),
    Shape(262144, 32, 256),
    Shape(1024, 1024, 1024, batch=32),
    Shape(128, 128, 128, batch=1024),
    *(Shape(4096, 4096, 4096, layout=layout) for layout in ("nt", "tn", "tt")),
    *(Shape(1024, 1024, 1024, layout=layout) for layout in ("nt", "tn", "tt")),
    *llm_shapes(),
]


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def operand(rows: int, columns: int, batch: int, order: str, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    lead = (batch,) if batch > 1 else ()
    if order == "t":
        return torch.randn(*lead, columns, rows, dtype=dtype, device=device).mT
    return torch.randn(*lead, rows, columns, dtype=dtype, device=device)


def reference(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The product in float64, and |A||B|: the scale that SGEMM's error bound speaks of."""
    a, b = a.double(), b.double()
    return a @ b, a.abs() @ b.abs()


def case(shape: Shape, dtype: torch.dtype, mode: str | None, options: Options) -> Case:
    """One shape; `mode` is the precision of an fp32 product and None for other dtypes."""
    m, n, k, batch = shape.m, shape.n, shape.k, shape.batch
    ours = partial(torch.ops.xgemm.matmul, precision=mode) if mode else torch.ops.xgemm.matmul
    peers = [Contender("torch", torch.matmul), *compiled(torch.matmul, options)]
    if mode and options.cuda:
        peers.append(Contender("torch_tf32", torch.matmul, tf32, tolerance=2.0**-9))
    return Case(
        name=shape.name,
        shape={"m": m, "n": n, "k": k, "batch": batch, "layout": shape.layout},
        dtype=dtype,
        make=lambda device: (
            operand(m, k, batch, shape.layout[0], dtype, device),
            operand(k, n, batch, shape.layout[1], dtype, device),
        ),
        contenders=[Contender("xgemm", ours, tolerance={"high": 2.0**-9, "medium": 2.0**-6}.get(mode, 0.0)), *peers],
        reference=reference,
        tolerance=sum_tolerance(k, dtype),
        read=batch * (m * k + k * n) * dtype.itemsize,
        written=batch * m * n * dtype.itemsize,
        flops=2.0 * batch * m * n * k,
        mode=mode,
    )


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        return [case(shape, torch.float32, "highest", options) for shape in CPU]
    shapes = QUICK if options.quick else PEERS + EXTRA if options.all else PEERS
    kinds = [(torch.float32, mode) for mode in options.modes] + [(torch.bfloat16, None)]
    if not options.quick:
        kinds.append((torch.float16, None))
    return [case(shape, dtype, mode, options) for shape in shapes for dtype, mode in kinds]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
