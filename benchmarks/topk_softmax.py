"""torch.ops.xgemm.topk_softmax against torch's softmax in fp32, topk and division: routers and samplers."""

import sys
from functools import partial

import torch

from benchmarks.common import Case, Contender, Options, cases_of, compiled, main, sum_tolerance

OP = "topk_softmax"
SOURCES = ["csrc/device", "csrc/topk_softmax"]

SHAPES = [
    (16384, 8, 2),
    (16384, 64, 6),
    (16384, 128, 8),
    (16384, 256, 8),
    (65536, 512, 10),
    (256, 128256, 50),
    (8192, 32768, 64),
]
QUICK = [(16384, 128, 8), (65536, 512, 10), (256, 128256, 50)]
CPU = [(64, 128, 8)]

Pair = tuple[torch.Tensor, torch.Tensor]


def eager(x: torch.Tensor, k: int) -> Pair:
    values, indices = torch.softmax(x, -1, dtype=torch.float32).topk(k, dim=-1)
    return values / values.sum(-1, keepdim=True), indices


def reference(x: torch.Tensor, k: int) -> Pair:
    result = torch.softmax(x.double().topk(k, dim=-1).values, -1).repeat(1, 2)
    return result, result


def values_twice(output: Pair, x: torch.Tensor) -> torch.Tensor:
    """The values, and those that the indices name: of several equal elements any index is right."""
    named = torch.softmax(x.double().gather(-1, output[1]), -1)
    return torch.cat([output[0].double(), named], -1)


def case(rows: int, n: int, k: int, dtype: torch.dtype, options: Options) -> Case:
    theirs = partial(eager, k=k)
    return Case(
        name=f"{rows}x{n} k{k}",
        shape={"sizes": [rows, n], "dim": -1, "k": k},
        dtype=dtype,
        make=lambda device: (torch.randn(rows, n, dtype=dtype, device=device),),
        contenders=[
            Contender("xgemm", partial(torch.ops.xgemm.topk_softmax, k=k, dtype=torch.float32)),
            Contender("torch", theirs),
            *compiled(theirs, options),
        ],
        reference=partial(reference, k=k),
        tolerance=sum_tolerance(n, torch.float32) + 16 * 2.0**-24,
        read=rows * n * dtype.itemsize,
        written=rows * k * 12,
        comparable=values_twice,
    )


def cases(options: Options) -> list[Case]:
    return cases_of(case, SHAPES, QUICK, CPU, options)


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
