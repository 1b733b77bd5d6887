"""torch.ops.xgemm.linear with its fused bias and activation against the same in torch."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.common import Case, Contender, Options, cases_of, compiled, main, sum_tolerance
from benchmarks.matmul import tf32
from torch_ext.functional._products import ACTIVATIONS

OP = "linear"
SOURCES = ["csrc/device", "csrc/matmul"]

# tokens, in, out, activation: the sentence model of the demo, and projections and MLPs of larger transformers.
PEERS = [
    (128, 384, 384, "none"),
    (4096, 384, 1536, "gelu"),
    (2048, 1024, 4096, "gelu"),
    (2048, 4096, 4096, "none"),
    (8192, 4096, 4096, "gelu"),
    (16, 4096, 14336, "silu"),
    (2048, 4096, 14336, "silu"),
]
EXTRA = [
    (tokens, size, wide, activation)
    for tokens in (1, 16, 128, 2048, 8192)
    for size, wide, activation in [
        (768, 3072, "gelu"),
        (1024, 4096, "gelu_tanh"),
        (5120, 13824, "silu"),
        (8192, 8192, "none"),
    ]
]
COMPILED = PEERS[1:3]  # where torch.compile is a peer without being asked for: each takes seconds to compile
CPU = [(64, 128, 128, "none"), (128, 384, 1536, "gelu")]

Call = Callable[..., torch.Tensor]


def layer(
    layer_shape: tuple[int, int, int, str],
    dtype: torch.dtype,
    ours: Call,
    theirs: Call,
    weights: Callable[[Call], tuple[torch.Tensor, ...]],
    reference: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    options: Options,
    *,
    matrices: int,
    roundings: int,
) -> Case:
    """A layer of (tokens, in, out, activation) with `matrices` matrices among `weights(new)`.

    In half precision torch rounds `roundings` times before its last operation; an activation's slope is at most 1.13.
    """
    tokens, size, wide, activation = layer_shape
    mode = "highest" if dtype == torch.float32 else None

    def make(device: torch.device) -> tuple[torch.Tensor, ...]:
        new = partial(torch.randn, dtype=dtype, device=device)
        return new(tokens, size), *weights(new)

    peers = [Contender("torch", theirs), *compiled(theirs, options)]
    if mode and options.cuda:
        peers.append(Contender("torch_tf32", theirs, tf32, tolerance=2.0**-9))
    return Case(
        name=f"{tokens}x{wide}x{size} {activation}",
        shape={"tokens": tokens, "in": size, "out": wide, "activation": activation},
        dtype=dtype,
        make=make,
        contenders=[Contender("xgemm", ours), *peers],
        reference=lambda *inputs: reference(*(x.double() for x in inputs)),
        tolerance=2 * sum_tolerance(size, dtype) + (roundings * torch.finfo(dtype).eps if mode is None else 0.0),
        read=(tokens * size + matrices * wide * size) * dtype.itemsize,
        written=tokens * wide * dtype.itemsize,
        flops=2.0 * matrices * tokens * size * wide,
        mode=mode,
    )


def case(tokens: int, size: int, wide: int, activation: str, dtype: torch.dtype, options: Options) -> Case:
    activate = ACTIVATIONS[activation]
    asked = options.compile or (options.cuda and not options.quick and (tokens, size, wide, activation) in COMPILED)
    return layer(
        (tokens, size, wide, activation),
        dtype,
        partial(torch.ops.xgemm.linear, activation=activation),
        lambda x, weight, bias: activate(F.linear(x, weight, bias)),
        lambda new: (new(wide, size), new(wide)),
        lambda x, weight, bias: (activate(F.linear(x, weight, bias)), F.linear(x.abs(), weight.abs(), bias.abs())),
        replace(options, compile=asked),
        matrices=1,
        roundings=1,
    )


def cases(options: Options) -> list[Case]:
    return cases_of(case, PEERS + EXTRA if options.all else PEERS, PEERS[1::3], CPU, options)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
