"""torch.ops.xgemm.gated_linear against the same in torch: two products, an activation and a multiplication."""

import sys
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.common import Case, Contender, Options, cases_of, compiled, main, sum_tolerance
from benchmarks.linear import ACTIVATIONS
from benchmarks.matmul import tf32

OP = "gated_linear"
SOURCES = ["csrc/device", "csrc/matmul"]

# tokens, in, out, activation: MLPs of transformers that gate.
PEERS = [
    (1, 4096, 14336, "silu"),
    (16, 4096, 14336, "silu"),
    (128, 4096, 14336, "silu"),
    (2048, 4096, 14336, "silu"),
    (8192, 4096, 14336, "silu"),
    (2048, 1024, 4096, "gelu"),
    (2048, 5120, 13824, "silu"),
]
EXTRA = [
    (tokens, size, wide, activation)
    for tokens in (1, 16, 128, 2048, 8192)
    for size, wide, activation in [(768, 3072, "gelu"), (2048, 5632, "silu"), (8192, 28672, "silu")]
]
CPU = [(64, 128, 128, "silu"), (128, 384, 1024, "gelu")]


def case(tokens: int, size: int, wide: int, activation: str, dtype: torch.dtype, options: Options) -> Case:
    activate = ACTIVATIONS[activation]
    mode = "highest" if dtype == torch.float32 else None

    def ours(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return torch.ops.xgemm.gated_linear(x, gate, up, activation=activation)

    def theirs(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return activate(F.linear(x, gate)) * F.linear(x, up)

    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        new = partial(torch.randn, dtype=dtype, device=device)
        return new(tokens, size), new(wide, size) / size**0.5, new(wide, size) / size**0.5

    def reference(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, gate, up = x.double(), gate.double(), up.double()
        g, u = activate(F.linear(x, gate)), F.linear(x, up)
        # Each factor's error times the other factor; an activation's slope is at most 1.13.
        scale = 1.13 * F.linear(x.abs(), gate.abs()) * u.abs() + g.abs() * F.linear(x.abs(), up.abs())
        return g * u, scale

    peers = [Contender("torch", theirs), *compiled(theirs, options)]
    if mode and options.cuda:
        peers.append(Contender("torch_tf32", theirs, tf32, tolerance=2.0**-9))
    # torch rounds both products and the activation to half precision.
    unfused = 0.0 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    return Case(
        name=f"{tokens}x{wide}x{size} {activation}",
        shape={"tokens": tokens, "in": size, "out": wide, "activation": activation},
        dtype=dtype,
        make=make,
        contenders=[Contender("xgemm", ours), *peers],
        reference=reference,
        tolerance=2 * sum_tolerance(size, dtype) + unfused,
        read=(tokens * size + 2 * wide * size) * dtype.itemsize,
        written=tokens * wide * dtype.itemsize,
        flops=4.0 * tokens * size * wide,
        mode=mode,
    )


def cases(options: Options) -> list[Case]:
    return cases_of(case, PEERS + EXTRA if options.all else PEERS, PEERS[1::3], CPU, options)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
