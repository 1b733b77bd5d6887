"""torch.ops.xgemm.sum and mean against torch.sum and mean: everything, rows, columns and short columns."""

import math
import sys
from functools import partial

import torch

from benchmarks.common import Case, Options, cases_of, main, row_case, sum_tolerance

OP = "sum"
SOURCES = ["csrc/device", "csrc/reduce"]

MATRICES = [(8192, 8192), (131072, 1024), (1024, 131072), (64, 4194304), (1048576, 128)]
PEERS = [((size,), None) for size in (1 << 16, 1 << 20, 1 << 24, 1 << 28, 1 << 30)]
PEERS += [(shape, dim) for shape in MATRICES for dim in (0, 1)]
PEERS += [((512, 4, 4096), 1), ((300, 48, 1001), 1)]  # a few positions of many columns
QUICK = [((1 << 16,), None), ((1 << 28,), None), ((8192, 8192), 0), ((131072, 1024), 1)]
CPU = [((1 << 16,), None), ((256, 1024), 0), ((256, 1024), 1)]


def case(shape: tuple[int, ...], dim: int | None, dtype: torch.dtype, options: Options, mean: bool = False) -> Case:
    ours, theirs = (torch.ops.xgemm.mean, torch.mean) if mean else (torch.ops.xgemm.sum, torch.sum)
    terms = math.prod(shape) if dim is None else shape[dim]
    share = 1 / terms if mean else 1

    def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        over = tuple(range(x.ndim)) if dim is None else dim
        return x.sum(over, dtype=torch.float64) * share, x.abs().sum(over, dtype=torch.float64) * share

    return row_case(
        shape,
        dim,
        dtype,
        ours if dim is None else partial(ours, dim=dim),
        theirs if dim is None else partial(theirs, dim=dim),
        reference,
        sum_tolerance(terms, dtype),
        options,
        prefix="mean" if mean else "",
    )


def cases(options: Options) -> list[Case]:
    found = cases_of(case, PEERS, QUICK, CPU, options)
    if not options.cuda:
        return found
    if not options.quick:
        found.append(case((8192, 8191), 0, torch.bfloat16, options))  # rows at odd addresses
    return found + [case((8192, 8192), 1, dtype, options, mean=True) for dtype in (torch.float32, torch.bfloat16)]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
