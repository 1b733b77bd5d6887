"""torch.ops.xgemm.logsumexp against torch.logsumexp over the last dim."""

import sys
from functools import partial

import torch

from benchmarks.common import Case, Options, main, row_case, sum_tolerance
from benchmarks.softmax import CPU, QUICK, SHAPES

OP = "logsumexp"
SOURCES = ["csrc/device", "csrc/reduce", "csrc/softmax"]


def reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    result = torch.logsumexp(x.double(), -1)
    return result, result.abs() + 1


def case(shape: tuple[int, int], dtype: torch.dtype, options: Options) -> Case:
    ours, theirs = partial(torch.ops.xgemm.logsumexp, dim=-1), partial(torch.logsumexp, dim=-1)
    return row_case(shape, -1, dtype, ours, theirs, reference, sum_tolerance(shape[1], dtype), options)


def cases(options: Options) -> list[Case]:
    if not options.cuda:
        return [case(shape, torch.float32, options) for shape in CPU]
    if options.quick:
        return [case(shape, torch.float32, options) for shape in QUICK]
    return [case(shape, dtype, options) for dtype in (torch.float32, torch.bfloat16) for shape in SHAPES]


if __name__ == "__main__":
    sys.exit(main(sys.modules[__name__]))
