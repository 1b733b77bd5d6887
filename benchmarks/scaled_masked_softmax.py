"""torch.ops.xgemm.scaled_masked_softmax against torch.softmax(x * scale + mask, -1)."""

import math
import sys

import torch

from benchmarks.common import Case, Contender, Options, cases_of, compiled, main, sum_tolerance

OP = "scaled_masked_softmax"
SOURCES = ["csrc/device", "csrc/softmax"]
SCALE = 0.125

# Scores of attention and a mask: of keys, of queries and keys, of everything.
SHAPES = [
    ((64, 16, 512, 512), (64, 1, 1, 512)),
    ((8, 16, 2048, 2048), (2048, 2048)),
    ((4, 16, 2048, 2048), (4, 16, 2048, 2048)),
]
CPU = [((2, 2, 64, 64), (64, 64))]


def ours(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.ops.xgemm.scaled_masked_softmax(x, mask, SCALE)


def theirs(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * SCALE + mask, -1)


def reference(x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result = torch.softmax(x.double() * SCALE + mask.double(), -1)
    return result, result


def case(shape: tuple[int, ...], mask: tuple[int, ...], dtype: torch.dtype, options: Options) -> Case:
    size = math.prod(shape)
    # torch rounds the logits to 16 bits, which exp makes a relative error.
    rounding = 8 * torch.finfo(dtype).eps if dtype is not torch.float32 else 16 * 2.0**-24
    return Case(
        name="x".join(map(str, shape)) + " mask " + "x".join(map(str, mask)),
        shape={"sizes": list(shape), "mask": list(mask)},
        dtype=dtype,
        make=lambda device: tuple(torch.randn(s, dtype=dtype, device=device) for s in (shape, mask)),
        contenders=[Contender("xgemm", ours), Contender("torch", theirs), *compiled(theirs, options)],
        reference=reference,
        tolerance=sum_tolerance(shape[-1], dtype) + rounding,
        read=(size + math.prod(mask)) * dtype.itemsize,
        written=size * dtype.itemsize,
    )


def cases(options: Options) -> list[Case]:
    return cases_of(case, SHAPES, SHAPES[:1], CPU, options)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
