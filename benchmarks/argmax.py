"""torch.ops.xgemm.argmax against torch.argmax."""

import sys
from functools import partial

import torch

from benchmarks.common import Case, Options, main, row_case
from benchmarks.sum import MATRICES

OP = "argmax"
SOURCES = ["csrc/device", "csrc/reduce"]


def case(shape: tuple[int, int], dim: int, dtype: torch.dtype, options: Options) -> Case:
    def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        largest = x.amax(dim).double()
        return largest, largest.abs()

    def value(index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The element an index names: of several equal maxima any index is right."""
        return x.gather(dim, index.unsqueeze(dim)).squeeze(dim)

    ours, theirs = partial(torch.ops.xgemm.argmax, dim=dim), partial(torch.argmax, dim=dim)
    rows = shape[0] * shape[1] // shape[dim]
    return row_case(shape, dim, dtype, ours, theirs, reference, 0.0, options, result_bytes=8 * rows, comparable=value)


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        return [case((256, 1024), 1, torch.float32, options)]
    if options.quick:
        return [case(shape, 1, torch.float32, options) for shape in MATRICES[::2]]
    return [case(shape, 1, dtype, options) for dtype in (torch.float32, torch.bfloat16) for shape in MATRICES]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
