"""torch.ops.xgemm.amax against torch.amax."""

import sys
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.common import Case, Options, main, row_case
from benchmarks.sum import MATRICES

OP = "amax"
SOURCES = ["csrc/device", "csrc/reduce"]


def extreme(x: torch.Tensor, dim: int, op: str) -> tuple[torch.Tensor, torch.Tensor]:
    result = getattr(torch, op)(x, dim).double()
    return result, result.abs()


def case(shape: tuple[int, int], dim: int, dtype: torch.dtype, options: Options, op: str = "amax") -> Case:
    """`op`: amax or amin."""
    ours, theirs = partial(getattr(torch.ops.xgemm, op), dim=dim), partial(getattr(torch, op), dim=dim)
    return row_case(shape, dim, dtype, ours, theirs, partial(extreme, dim=dim, op=op), 0.0, options)


def cases(options: Options, one: Callable[..., Case] = case) -> list[Case]:
    if not options.cuda:
        return [one((256, 1024), 1, torch.float32, options)]
    if options.quick:
        return [one(shape, 1, torch.float32, options) for shape in MATRICES[::2]]
    return [one(shape, 1, dtype, options) for dtype in (torch.float32, torch.bfloat16) for shape in MATRICES]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
