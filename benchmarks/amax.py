"""torch.ops.xgemm.amax against torch.amax."""

import sys
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.common import Case, Options, main, row_case
from benchmarks.sum import MATRICES

OP = "amax"
SOURCES = ["csrc/device", "csrc/reduce"]


def largest(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    result = x.amax(dim).double()
    return result, result.abs()


def case(shape: tuple[int, int], dim: int, dtype: torch.dtype, options: Options) -> Case:
    ours, theirs = partial(torch.ops.xgemm.amax, dim=dim), partial(torch.amax, dim=dim)
    return row_case(shape, dim, dtype, ours, theirs, partial(largest, dim=dim), 0.0, options)


def cases(options: Options, one: Callable[..., Case] = case) -> list[Case]:
    if not options.cuda:
        return [one((256, 1024), 1, torch.float32, options)]
    if options.quick:
        return [one(shape, 1, torch.float32, options) for shape in MATRICES[::2]]
    return [one(shape, 1, dtype, options) for dtype in (torch.float32, torch.bfloat16) for shape in MATRICES]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
