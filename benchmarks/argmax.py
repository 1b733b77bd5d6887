"""torch.ops.xgemm.argmax against torch.argmax."""

import sys
from functools import partial

import torch

from benchmarks import amax
from benchmarks.common import Case, Options, main, row_case

OP = "argmax"
SOURCES = ["csrc/device", "csrc/reduce"]


def case(shape: tuple[int, int], dim: int, dtype: torch.dtype, options: Options, op: str = "argmax") -> Case:
    """`op`: argmax or argmin."""

    def value(index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The element an index names: of several equal ones any index is right."""
        return x.gather(dim, index.unsqueeze(dim)).squeeze(dim)

    ours, theirs = partial(getattr(torch.ops.xgemm, op), dim=dim), partial(getattr(torch, op), dim=dim)
    rows = shape[0] * shape[1] // shape[dim]
    return row_case(
        shape,
        dim,
        dtype,
        ours,
        theirs,
        partial(amax.extreme, dim=dim, op=op.replace("arg", "a")),
        0.0,
        options,
        result_bytes=8 * rows,
        comparable=value,
    )


def cases(options: Options) -> list[Case]:
    found = amax.cases(options, case)
    if not options.cuda or options.quick:
        return found
    return [*found, case((8192, 8192), 0, torch.bfloat16, options)]  # a dim that is not the last


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
