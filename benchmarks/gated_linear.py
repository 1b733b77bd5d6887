"""torch.ops.xgemm.gated_linear against the same in torch: two products, an activation and a multiplication."""

import sys
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.common import Case, Options, cases_of, main
from benchmarks.linear import layer
from torch_ext.functional._products import ACTIVATIONS

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

    def reference(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        g, u = activate(F.linear(x, gate)), F.linear(x, up)
        # Each factor's error times the other factor.
        scale = 1.13 * F.linear(x.abs(), gate.abs()) * u.abs() + g.abs() * F.linear(x.abs(), up.abs())
        return g * u, scale

    return layer(
        (tokens, size, wide, activation),
        dtype,
        partial(torch.ops.xgemm.gated_linear, activation=activation),
        lambda x, gate, up: activate(F.linear(x, gate)) * F.linear(x, up),
        lambda new: (new(wide, size) / size**0.5, new(wide, size) / size**0.5),
        reference,
        options,
        matrices=2,
        roundings=2,
    )


def cases(options: Options) -> list[Case]:
    return cases_of(case, PEERS + EXTRA if options.all else PEERS, PEERS[1::3], CPU, options)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
